-- interviews
SELECT COUNT(*), COUNT(DISTINCT idcode) FROM interviews;

-- mean wage
SELECT AVG(ln_wage), AVG(hours), AVG(tenure) FROM interviews;

-- spread of wages
SELECT STDDEV(ln_wage), CORR(ln_wage, tenure) FROM interviews;

-- middle hours
SELECT MEDIAN(hours), QUANTILE_CONT(ln_wage, 0.9) FROM interviews;

-- hours in all
SELECT SUM(hours) FROM interviews;

-- interviews by year
SELECT year, COUNT(*) FROM interviews GROUP BY year;

-- wage by year
SELECT year, AVG(ln_wage) FROM interviews GROUP BY year;

-- wage by race
SELECT race, COUNT(*), AVG(ln_wage) FROM interviews GROUP BY race;

-- wage by degree and union
SELECT collgrad, union_member, COUNT(*), AVG(ln_wage) FROM interviews WHERE union_member IS NOT NULL GROUP BY collgrad, union_member;

-- interviews by occupation
SELECT occ_code, COUNT(*), SUM(hours) FROM interviews WHERE occ_code IS NOT NULL GROUP BY occ_code;

-- women by occupation
SELECT occ_code, COUNT(DISTINCT idcode) FROM interviews WHERE occ_code IS NOT NULL GROUP BY occ_code;

-- women by number of interviews
SELECT n, COUNT(*) FROM (SELECT idcode, COUNT(*) AS n FROM interviews GROUP BY idcode) GROUP BY n;

-- interviews by region and race
SELECT south, race, COUNT(*) FROM interviews WHERE south IS NOT NULL GROUP BY CUBE (south, race);

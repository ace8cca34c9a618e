-- people
SELECT COUNT(*), AVG(age), AVG(weight), AVG(height), AVG(bmi) FROM people;

-- deaths
SELECT COUNT(*), SUM(status), AVG(futime) FROM people WHERE status = 1;

-- measurements
SELECT COUNT(*), COUNT(DISTINCT id) FROM measurements;

-- middle age
SELECT MEDIAN(age), MEDIAN(bmi), QUANTILE_CONT(bmi, 0.95) FROM people;

-- spread of ages
SELECT STDDEV(age), CORR(age, bmi) FROM people;

-- people by sex
SELECT male, COUNT(*), AVG(age), AVG(bmi) FROM people GROUP BY male;

-- deaths by sex
SELECT male, status, COUNT(*) FROM people GROUP BY male, status;

-- people by decade of age
SELECT age // 10 AS decade, COUNT(*), AVG(status) FROM people GROUP BY decade;

-- measurements by test
SELECT test, COUNT(*), COUNT(DISTINCT id) FROM measurements GROUP BY test;

-- mean value by test
SELECT test, AVG(value) FROM measurements GROUP BY test;

-- cholesterol
SELECT AVG(value), STDDEV(value) FROM measurements WHERE test = 'chol';

-- blood pressure by sex
SELECT p.male, AVG(m.value) FROM measurements AS m JOIN people AS p USING (id) WHERE m.test = 'sbp' GROUP BY p.male;

-- measurements by year
SELECT days // 365 AS year, COUNT(*) FROM measurements GROUP BY year;

-- measurements of a person
SELECT AVG(n), MEDIAN(n) FROM (SELECT id, COUNT(*) AS n FROM measurements GROUP BY id);

-- smokers
SELECT COUNT(DISTINCT id), COUNT(*) FROM measurements WHERE test = 'smoke' AND value = 1;

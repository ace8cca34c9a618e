-- stops
SELECT COUNT(*) FROM stops;

-- place
SELECT AVG(lat), AVG(long), STDDEV(lat) FROM stops;

-- middle of the city
SELECT MEDIAN(lat), MEDIAN(long) FROM stops;

-- stops by problem
SELECT problem, COUNT(*) FROM stops GROUP BY problem;

-- stops by race and gender
SELECT race, gender, COUNT(*) FROM stops WHERE race IS NOT NULL AND gender IS NOT NULL GROUP BY race, gender;

-- searches by race
SELECT race, COUNT(*), COUNT_IF(personSearch = 'YES') FROM stops WHERE race IS NOT NULL GROUP BY race;

-- stops by day
SELECT stopped_on, COUNT(*) FROM stops GROUP BY stopped_on;

-- stops by month and precinct
SELECT month(stopped_on) AS month, policePrecinct, COUNT(*) FROM stops GROUP BY month, policePrecinct;

-- stops by neighborhood
SELECT neighborhood, COUNT(*) FROM stops GROUP BY neighborhood;

-- searches by race and gender with totals
SELECT race, gender, COUNT(*) FROM stops WHERE personSearch = 'YES' AND race IS NOT NULL AND gender IS NOT NULL GROUP BY CUBE (race, gender);

-- latitude by precinct
SELECT policePrecinct, AVG(lat), AVG(long) FROM stops GROUP BY policePrecinct;

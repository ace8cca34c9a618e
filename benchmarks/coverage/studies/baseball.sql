-- seasons
SELECT COUNT(*) FROM batting;

-- players and their size
SELECT COUNT(*), AVG(weight), AVG(height), STDDEV(height) FROM people;

-- runs and homers
SELECT SUM(R), SUM(HR), SUM(H) FROM batting;

-- mean games of a season
SELECT AVG(G), AVG(AB) FROM batting;

-- middle salary
SELECT MEDIAN(salary), QUANTILE_CONT(salary, 0.25) FROM salaries;

-- total salary
SELECT SUM(salary), AVG(salary) FROM salaries;

-- seasons by year
SELECT yearID, COUNT(*) FROM batting GROUP BY yearID;

-- homers by year
SELECT yearID, SUM(HR) FROM batting GROUP BY yearID;

-- games by league
SELECT lgID, COUNT(*), SUM(G), AVG(G) FROM batting GROUP BY lgID;

-- players by league
SELECT lgID, COUNT(DISTINCT playerID) FROM batting GROUP BY lgID;

-- seasons by team
SELECT teamID, COUNT(*) FROM batting GROUP BY teamID;

-- salary by year
SELECT yearID, AVG(salary), SUM(salary) FROM salaries GROUP BY yearID;

-- players by hand
SELECT bats, throws, COUNT(*) FROM people GROUP BY bats, throws;

-- weight by hand
SELECT bats, AVG(weight), MEDIAN(weight) FROM people GROUP BY bats;

-- players by country
SELECT birthCountry, COUNT(*) FROM people GROUP BY birthCountry;

-- hits by hand
SELECT p.bats, SUM(b.H), AVG(b.H) FROM batting AS b JOIN people AS p USING (playerID) GROUP BY p.bats;

-- length of careers
SELECT seasons, COUNT(*) FROM (SELECT playerID, COUNT(DISTINCT yearID) AS seasons FROM batting GROUP BY playerID) GROUP BY seasons;

-- mean homers of a career
SELECT AVG(homers) FROM (SELECT playerID, SUM(HR) AS homers FROM batting GROUP BY playerID);

-- homers by decade and league
SELECT yearID // 10 * 10 AS decade, lgID, SUM(HR) FROM batting GROUP BY decade, lgID;

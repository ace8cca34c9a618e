-- ratings
SELECT COUNT(*) FROM ratings;

-- people
SELECT COUNT(DISTINCT userId) FROM ratings;

-- mean rating
SELECT AVG(rating), STDDEV(rating) FROM ratings;

-- films
SELECT COUNT(DISTINCT movieId) FROM ratings;

-- middle rating
SELECT MEDIAN(rating) FROM ratings;

-- ratings by value
SELECT CAST(rating * 2 AS INTEGER) AS halves, COUNT(*) FROM ratings GROUP BY halves;

-- ratings by year
SELECT year(rated_on) AS rated_in, COUNT(*), AVG(rating) FROM ratings GROUP BY rated_in;

-- people by year
SELECT year(rated_on) AS rated_in, COUNT(DISTINCT userId) FROM ratings GROUP BY rated_in;

-- ratings by decade of the film
SELECT year // 10 * 10 AS decade, COUNT(*), AVG(rating) FROM ratings WHERE year IS NOT NULL GROUP BY decade;

-- genres
SELECT genres, COUNT(*) FROM ratings GROUP BY genres;

-- good ratings
SELECT COUNT(*), COUNT(DISTINCT userId) FROM ratings WHERE rating >= 4.5;

-- ratings of a person
SELECT AVG(n), MEDIAN(n) FROM (SELECT userId, COUNT(*) AS n FROM ratings GROUP BY userId);

-- mean of people's means
SELECT AVG(mean) FROM (SELECT userId, AVG(rating) AS mean FROM ratings GROUP BY userId);

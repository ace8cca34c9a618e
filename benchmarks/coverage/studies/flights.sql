-- flights
SELECT COUNT(*) FROM flights;

-- aircraft
SELECT COUNT(DISTINCT tailnum) FROM flights;

-- miles
SELECT SUM(distance) FROM flights;

-- mean delay
SELECT AVG(dep_delay) FROM flights;

-- several at once
SELECT COUNT(*), COUNT(DISTINCT tailnum), SUM(distance), AVG(dep_delay), AVG(air_time) FROM flights;

-- destinations
SELECT COUNT(DISTINCT dest) FROM flights;

-- late long flights
SELECT COUNT(*), AVG(arr_delay) FROM flights WHERE distance > 1000 AND dep_delay > 15;

-- quartiles of delay
SELECT MEDIAN(dep_delay), QUANTILE_CONT(dep_delay, 0.9) FROM flights;

-- flights by carrier
SELECT carrier, COUNT(*) FROM flights GROUP BY carrier;

-- aircraft by carrier
SELECT carrier, COUNT(DISTINCT tailnum) FROM flights GROUP BY carrier;

-- delay by carrier
SELECT carrier, COUNT(*), AVG(dep_delay), AVG(arr_delay) FROM flights GROUP BY carrier;

-- flights by origin
SELECT origin, COUNT(*), SUM(distance), AVG(distance) FROM flights GROUP BY origin;

-- flights by destination
SELECT dest, COUNT(*) FROM flights GROUP BY dest;

-- miles by destination
SELECT dest, SUM(distance) FROM flights GROUP BY dest;

-- delay by destination
SELECT dest, AVG(arr_delay) FROM flights GROUP BY dest;

-- flights by month
SELECT month, COUNT(*) FROM flights GROUP BY month;

-- delay by hour
SELECT hour, COUNT(*), AVG(dep_delay) FROM flights WHERE hour BETWEEN 5 AND 23 GROUP BY hour;

-- flights by origin and carrier
SELECT origin, carrier, COUNT(*) FROM flights GROUP BY origin, carrier;

-- miles by month and origin
SELECT month, origin, COUNT(*), SUM(distance) FROM flights GROUP BY month, origin;

-- flights by origin and destination
SELECT origin, dest, COUNT(*) FROM flights GROUP BY origin, dest;

-- destinations by carrier
SELECT carrier, COUNT(DISTINCT dest) FROM flights GROUP BY carrier;

-- late flights by airline
SELECT name, COUNT(*), AVG(CAST(arr_delay > 15 AS INTEGER)) FROM flights JOIN airlines USING (carrier) GROUP BY name;

-- flights by time zone
SELECT tzone, COUNT(*), AVG(distance) FROM flights JOIN airports ON dest = faa GROUP BY tzone;

-- flights by time zone, others too
SELECT COALESCE(tzone, 'Caribbean'), COUNT(*), AVG(distance)
FROM flights LEFT JOIN airports ON dest = faa GROUP BY COALESCE(tzone, 'Caribbean');

-- departures in rain
SELECT COUNT(*), AVG(dep_delay)
FROM flights JOIN (SELECT DISTINCT origin, month, day, hour FROM weather WHERE precip > 0)
USING (origin, month, day, hour);

-- seats by engine
SELECT engine, COUNT(*), AVG(seats), SUM(seats) FROM planes GROUP BY engine;

-- aircraft by manufacturer
SELECT manufacturer, COUNT(*) FROM planes GROUP BY manufacturer;

-- flights by engine
SELECT engine, COUNT(*), SUM(distance) FROM flights JOIN planes USING (tailnum) GROUP BY engine;

-- aircraft by departures
SELECT departures // 50 * 50, COUNT(*)
FROM (SELECT tailnum, COUNT(*) AS departures FROM flights GROUP BY tailnum) GROUP BY departures // 50 * 50;

-- median delay by origin
SELECT origin, MEDIAN(arr_delay) FROM flights GROUP BY origin;

-- spread of distances
SELECT origin, STDDEV(distance) FROM flights GROUP BY origin;

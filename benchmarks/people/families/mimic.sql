-- source: MIT Laboratory for Computational Physiology: mimic-code, concepts and tutorials of MIMIC
-- address: https://github.com/MIT-LCP/mimic-code
-- seen: read in part
-- in: postgres bigquery duckdb

-- patients by gender
SELECT {tier} AS gender, COUNT(*) AS n FROM {people} GROUP BY {tier}

-- distinct patients and stays
SELECT COUNT(DISTINCT {id}) AS patients, COUNT(DISTINCT {key}) AS stays FROM {facts}

-- age bins
SELECT CASE WHEN {age} < 16 THEN 'neonate' WHEN {age} BETWEEN 16 AND 44 THEN 'young' WHEN {age} BETWEEN 45 AND 64 THEN 'middle' WHEN {age} >= 65 THEN 'old' END AS age_group, COUNT(*) AS n FROM {people} GROUP BY age_group ORDER BY age_group

-- first stay by rank
WITH s AS (SELECT {id}, {kind}, {qty}, ROW_NUMBER() OVER (PARTITION BY {id} ORDER BY {at}) AS stay_num FROM {facts}) SELECT {kind}, COUNT(*) AS n, AVG({qty}) AS los FROM s WHERE stay_num = 1 GROUP BY {kind}

-- rank labels of stays
WITH s AS (SELECT {id}, RANK() OVER (PARTITION BY {id} ORDER BY {at}) AS stay_order FROM {facts}) SELECT CASE WHEN stay_order = 1 THEN 'first' WHEN stay_order = 2 THEN 'second' ELSE 'later' END AS stay, COUNT(*) AS n FROM s GROUP BY 1

-- time between two tables
SELECT AVG({days:p.{joined};f.{day}}) AS mean_days FROM {people} p INNER JOIN {facts} f ON p.{id} = f.{id} WHERE f.{kind} = {k1}

-- death within thirty days
SELECT COUNT(DISTINCT p.{id}) AS patients, COUNT(DISTINCT CASE WHEN {days:p.{joined};f.{day}} <= 30 THEN p.{id} END) AS soon FROM {people} p LEFT JOIN {facts} f ON p.{id} = f.{id}

-- flag by maximum of a case for each patient
SELECT SUM(has_a) AS a, SUM(has_b) AS b, COUNT(*) AS n FROM (SELECT {id}, MAX(CASE WHEN {kind} = {k1} THEN 1 ELSE 0 END) AS has_a, MAX(CASE WHEN {kind} = {k2} THEN 1 ELSE 0 END) AS has_b FROM {facts} GROUP BY {id}) t

-- score of several flags
WITH flags AS (SELECT {id}, MAX(CASE WHEN {kind} = {k1} THEN 1 ELSE 0 END) AS chf, MAX(CASE WHEN {kind} IN ({k2}, {k3}) THEN 1 ELSE 0 END) AS copd, MAX(CASE WHEN {qty} > 7 THEN 1 ELSE 0 END) AS severe FROM {facts} GROUP BY {id}) SELECT 3 * chf + 2 * copd + severe AS score, COUNT(*) AS n FROM flags GROUP BY 1 ORDER BY 1

-- measurements on the first day
SELECT AVG(l.{score}) AS mean, MIN(l.{score}) AS lowest, MAX(l.{score}) AS highest, COUNT(l.{score}) AS n FROM {people} p LEFT JOIN {logs} l ON p.{id} = l.{id} AND {date:l.{lat}} <= {add:p.{joined};30}

-- means of a patient, then of all
SELECT AVG(m) AS mean_of_means, STDDEV(m) AS sd FROM (SELECT {id}, AVG({score}) AS m FROM {logs} GROUP BY {id}) t

-- pivoted measurements of a patient
SELECT {tier}, AVG(a) AS a, AVG(b) AS b FROM (SELECT p.{id}, p.{tier}, MAX(CASE WHEN l.{channel} = {c1} THEN l.{score} END) AS a, MAX(CASE WHEN l.{channel} = {c2} THEN l.{score} END) AS b FROM {people} p LEFT JOIN {logs} l ON l.{id} = p.{id} GROUP BY p.{id}, p.{tier}) t GROUP BY {tier}

-- impossible values removed
SELECT {channel}, COUNT(*) AS n, AVG(CASE WHEN {score} > 0 AND {score} < 5 THEN {score} END) AS mean FROM {logs} GROUP BY {channel}

-- units converted
SELECT AVG(CASE WHEN {channel} = {c1} THEN {score} * 2.54 ELSE {score} END) AS cm FROM {logs} WHERE {score} IS NOT NULL

-- length of stay, median by kind
SELECT {kind}, {med:{qty}} AS median_los, COUNT(*) AS n FROM {facts} GROUP BY {kind} ORDER BY {kind}

-- consecutive events of a patient
SELECT COUNT(*) AS n, AVG({days:prev;{day}}) AS gap FROM (SELECT {day}, LAG({day}) OVER (PARTITION BY {id} ORDER BY {at}) AS prev FROM {facts}) t WHERE prev IS NOT NULL

-- readmission within thirty days
SELECT SUM(CASE WHEN {days:{day};next_day} <= 30 THEN 1 ELSE 0 END) AS readmitted, COUNT(*) AS n FROM (SELECT {day}, LEAD({day}) OVER (PARTITION BY {id} ORDER BY {at}) AS next_day FROM {facts}) t

-- concurrent measurements
SELECT COUNT(*) AS pairs FROM {logs} a JOIN {facts} b ON a.{id} = b.{id} AND {date:a.{lat}} = b.{day}

-- concept by a lookup of labels
SELECT i.{class}, COUNT(DISTINCT f.{id}) AS patients FROM {facts} f INNER JOIN {items} i ON f.{code} = i.{code} WHERE LOWER(i.{label}) LIKE '%a%' GROUP BY i.{class} ORDER BY patients DESC

-- worst value of a day
SELECT AVG(worst) AS mean_worst FROM (SELECT {id}, {date:{lat}} AS d, MIN({score}) AS worst FROM {logs} GROUP BY {id}, {date:{lat}}) t

-- values of each patient
-- refused: individual rows
SELECT p.{id}, MIN(l.{score}) AS lowest, MAX(l.{score}) AS highest FROM {people} p LEFT JOIN {logs} l ON p.{id} = l.{id} GROUP BY p.{id}

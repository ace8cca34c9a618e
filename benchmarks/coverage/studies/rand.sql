-- rows
SELECT COUNT(*) FROM rand_hie;

-- visits
SELECT SUM(mdvis) FROM rand_hie;

-- mean visits
SELECT AVG(mdvis) FROM rand_hie;

-- several at once
SELECT COUNT(*), SUM(mdvis), AVG(mdvis), AVG(disea), AVG(lpi) FROM rand_hie;

-- distinct visits
SELECT COUNT(DISTINCT mdvis) FROM rand_hie;

-- without a visit
SELECT COUNT(*) FROM rand_hie WHERE mdvis = 0;

-- share without a visit
SELECT AVG(CAST(mdvis = 0 AS INTEGER)) FROM rand_hie;

-- the sick with free care
SELECT COUNT(*), AVG(mdvis) FROM rand_hie WHERE disea > 20 AND lncoins = 0;

-- in poor health
SELECT COUNT(*), SUM(mdvis), AVG(mdvis), AVG(disea) FROM rand_hie WHERE hlthp = 1;

-- payments
SELECT SUM(exp(lpi) - 1) FROM rand_hie;

-- middle
SELECT MEDIAN(mdvis), MEDIAN(disea) FROM rand_hie;

-- high end
SELECT QUANTILE_CONT(mdvis, 0.9), QUANTILE_CONT(disea, 0.9) FROM rand_hie;

-- spread
SELECT STDDEV(mdvis), VAR_SAMP(disea) FROM rand_hie;

-- correlation
SELECT CORR(mdvis, disea) FROM rand_hie;

-- rows by deductible
SELECT idp, COUNT(*) FROM rand_hie GROUP BY idp;

-- visits by deductible
SELECT idp, COUNT(*), SUM(mdvis), AVG(mdvis) FROM rand_hie GROUP BY idp;

-- disease by good health
SELECT hlthg, AVG(disea) FROM rand_hie GROUP BY hlthg;

-- health
SELECT hlthg, hlthf, COUNT(*), AVG(mdvis) FROM rand_hie GROUP BY hlthg, hlthf;

-- plans
SELECT CASE WHEN idp = 1 THEN 'deductible' WHEN lncoins = 0 THEN 'free' ELSE 'pays' END, COUNT(*), AVG(mdvis)
FROM rand_hie
GROUP BY CASE WHEN idp = 1 THEN 'deductible' WHEN lncoins = 0 THEN 'free' ELSE 'pays' END;

-- rows by visits
SELECT mdvis, COUNT(*) FROM rand_hie GROUP BY mdvis;

-- disease by visits
SELECT mdvis, AVG(disea) FROM rand_hie WHERE mdvis <= 20 GROUP BY mdvis;

-- rows by tens of visits
SELECT mdvis // 10 * 10, COUNT(*), AVG(disea) FROM rand_hie GROUP BY mdvis // 10 * 10;

-- rows by disease
SELECT CAST(floor(disea / 5) AS INTEGER), COUNT(*), SUM(mdvis)
FROM rand_hie GROUP BY CAST(floor(disea / 5) AS INTEGER);

-- rows by disease and deductible
SELECT CAST(floor(disea / 10) AS INTEGER), idp, COUNT(*), AVG(mdvis)
FROM rand_hie GROUP BY CAST(floor(disea / 10) AS INTEGER), idp;

-- rows by coinsurance
SELECT lncoins, COUNT(*), AVG(mdvis) FROM rand_hie GROUP BY lncoins;

-- limited by deductible
SELECT idp, COUNT(*), AVG(physlm) FROM rand_hie WHERE physlm > 0 GROUP BY idp;

-- middle by deductible
SELECT idp, MEDIAN(mdvis) FROM rand_hie GROUP BY idp;

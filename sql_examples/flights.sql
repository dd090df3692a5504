-- A year of flights out of New York, enriched by looking up what each flight needs, and nothing more.
--
--     python sql_examples/prepare_data.py
--     lookup-hints run sql_examples/flights.sql
--
-- The flights (336,776 rows of Parquet) stay in Spark. Planes, airports, airlines and weather stand in
-- another system, here an SQLite file, and are asked for the keys that occur: no table is read whole.

-- The weather's hours are text in UTC (SQLite has no type for times), so the session speaks UTC too.
SET spark.sql.session.timeZone = UTC;

-- An ordinary view. Nothing here knows of lookups.
CREATE OR REPLACE TEMPORARY VIEW flights AS
SELECT * FROM parquet.`data/flights.parquet`;

-- Lookup tables: the columns that queries may use, and how to reach the source. Creating one connects to
-- nothing. The key is not enforced, as in Flink: it tells readers (and EXPLAIN) what is unique.
CREATE OR REPLACE TEMPORARY TABLE planes (
  tailnum STRING, year INT, manufacturer STRING, model STRING, seats INT,
  PRIMARY KEY (tailnum) NOT ENFORCED
) WITH ('connector' = 'sqlite', 'path' = 'data/dimensions.sqlite');

CREATE OR REPLACE TEMPORARY TABLE airports (
  faa STRING, name STRING, tzone STRING,
  PRIMARY KEY (faa) NOT ENFORCED
) WITH ('connector' = 'sqlite', 'path' = 'data/dimensions.sqlite');

CREATE OR REPLACE TEMPORARY TABLE airlines (
  carrier STRING, name STRING,
  PRIMARY KEY (carrier) NOT ENFORCED
) WITH ('connector' = 'sqlite', 'path' = 'data/dimensions.sqlite');

-- A table in the source may have another name than here: 'table-name' says which one is meant.
CREATE OR REPLACE TEMPORARY TABLE hourly_weather (
  origin STRING, time_hour STRING, wind_speed DOUBLE, visib DOUBLE,
  PRIMARY KEY (origin, time_hour) NOT ENFORCED
) WITH ('connector' = 'sqlite', 'path' = 'data/dimensions.sqlite', 'table-name' = 'weather');

-- Whose planes are late, and does the wind matter?
--
--  * A hint is found by the alias of the table that it speaks of. All its options have defaults; here the
--    planes and the weather are asked for up to 5,000 keys at once, as few round trips cost least.
--  * LEFT JOIN planes keeps the flights whose plane nobody knows: 52,606 of them, one in six.
--    `p.seats >= 20` is not a key. It is checked on what was found, and a flight whose plane fails it is
--    kept too, without a plane.
--  * JOIN airports drops the 7,602 flights to airports that are not in the table (in Puerto Rico and on
--    the Virgin Islands).
--  * The weather has a key of two columns, one of them an expression over the flight's own time.
WITH enriched AS (
  SELECT /*+ LOOKUP('table' = 'p', 'batch-size' = '5000')
             LOOKUP('table' = 'w', 'batch-size' = '5000', 'timeout' = '1 min') */
         al.name AS airline,
         a.name AS destination,
         f.dep_delay,
         f.arr_delay,
         coalesce(p.manufacturer, '(unknown or small)') AS manufacturer,
         CASE
           WHEN w.wind_speed IS NULL THEN '(no report)'
           WHEN w.wind_speed < 8 THEN '1 calm'
           WHEN w.wind_speed < 19 THEN '2 breeze'
           ELSE '3 strong'
         END AS wind
  FROM flights AS f
  JOIN airlines AS al ON f.carrier = al.carrier
  JOIN airports AS a ON f.dest = a.faa
  LEFT JOIN planes AS p ON f.tailnum = p.tailnum AND p.seats >= 20
  LEFT JOIN hourly_weather AS w
    ON f.origin = w.origin AND date_format(f.time_hour, 'yyyy-MM-dd HH:mm:ss') = w.time_hour
)
SELECT manufacturer,
       wind,
       count(*) AS flights,
       count(DISTINCT airline) AS airlines,
       count(DISTINCT destination) AS destinations,
       round(avg(dep_delay), 1) AS departs_late,
       round(avg(arr_delay), 1) AS arrives_late
FROM enriched
GROUP BY manufacturer, wind
HAVING count(*) >= 2000
ORDER BY manufacturer, wind
LIMIT 20;

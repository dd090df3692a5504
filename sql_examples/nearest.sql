-- Where could a flight land instead? The nearest airport in the same time zone, for each destination.
--
--     python sql_examples/prepare_data.py
--     lookup-hints run sql_examples/nearest.sql
--
-- The 1,458 airports stand in an SQLite file. Of them those are asked for that are in the time zones that
-- occur, and only these are compared. So it runs on each Spark, though NEAREST BY is of Spark 4.3.

CREATE OR REPLACE TEMPORARY VIEW flights AS
SELECT * FROM parquet.`data/flights.parquet`;

CREATE OR REPLACE TEMPORARY TABLE airports (
  faa STRING, name STRING, lat DOUBLE, lon DOUBLE, tzone STRING,
  PRIMARY KEY (faa) NOT ENFORCED
) WITH ('connector' = 'sqlite', 'path' = 'data/dimensions.sqlite');

-- The nearest airport of all is the destination itself, so two are asked for. The distance is the great
-- circle in kilometres, which the planner knows; what the SELECT shows is Spark's own arithmetic.
WITH destinations AS (
  SELECT d.flights, a.*
  FROM (SELECT dest, count(*) AS flights FROM flights GROUP BY dest) AS d
  JOIN airports AS a ON a.faa = d.dest
), alternates AS (
  SELECT /*+ LOOKUP('table' = 'n') */ d.faa AS dest, d.flights, n.faa, n.name,
         12742.0176D * asin(sqrt(
           pow(sin(radians(n.lat - d.lat) / 2), 2)
           + cos(radians(d.lat)) * cos(radians(n.lat)) * pow(sin(radians(n.lon - d.lon) / 2), 2))) AS km
  FROM destinations AS d
  JOIN airports AS n EXACT NEAREST 2 BY DISTANCE CASE WHEN n.tzone = d.tzone THEN
         12742.0176D * asin(sqrt(
           pow(sin(radians(n.lat - d.lat) / 2), 2)
           + cos(radians(d.lat)) * cos(radians(n.lat)) * pow(sin(radians(n.lon - d.lon) / 2), 2))) END
)
SELECT dest, flights, faa, name, round(km, 1) AS km
FROM alternates
WHERE faa <> dest
ORDER BY flights DESC, dest
LIMIT 10;

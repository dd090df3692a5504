-- Flights that arrive one file after another, enriched as they come: a streaming query from a file of SQL.
--
--     python sql_examples/prepare_data.py
--     lookup-hints run sql_examples/stream.sql --param flights=$PWD/data/flights.parquet
--
-- Run it again, and nothing is doubled: the checkpoint knows what has been written. Put another file into
-- data/flights.parquet, run it again, and its flights are added. (make clean removes all of it.)

SET spark.sql.session.timeZone = UTC;

-- What arrives: files in a folder. Kafka and other sources are tables in the same way
-- (CREATE TABLE ... USING kafka OPTIONS (...)), or temporary views of readStream.
CREATE TABLE IF NOT EXISTS arriving (
  year INT, month INT, day INT, carrier STRING, flight INT, tailnum STRING, dest STRING
) USING parquet LOCATION :flights;

CREATE OR REPLACE TEMPORARY TABLE planes (
  tailnum STRING, manufacturer STRING, seats INT, PRIMARY KEY (tailnum) NOT ENFORCED
) WITH ('connector' = 'sqlite', 'path' = 'data/dimensions.sqlite');

-- How the query runs: its name, its checkpoint, and when it looks for new files. available-now takes all
-- that is there and ends; without a trigger the query goes on until it is stopped.
SET lookup.stream.name = enriched_flights;
SET lookup.stream.checkpoint = data/checkpoints/enriched_flights;
SET lookup.stream.trigger = available-now;

-- What happens when it fails. This is the default of a query with a checkpoint, as in Flink: it starts
-- again after 1 s, 1.5 s, 2.25 s, ... and at most 1 min, for as long as it takes.
SET restart-strategy.type = exponential-delay;

-- One file in each micro-batch. A plane that is not known yet is asked for again within its batch.
INSERT INTO parquet.`data/enriched_flights`
SELECT /*+ LOOKUP('table' = 'p', 'retry-predicate' = 'lookup_miss', 'retry-strategy' = 'fixed_delay',
                  'fixed-delay' = '10 ms', 'max-attempts' = '2') */
       f.month, f.day, f.carrier, f.flight, f.tailnum, p.manufacturer, p.seats
FROM STREAM arriving WITH ('maxFilesPerTrigger' = '1') AS f
LEFT JOIN planes AS p ON f.tailnum = p.tailnum;

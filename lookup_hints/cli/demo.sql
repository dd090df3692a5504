-- What `lookup-hints demo` runs. The files that it names stand beside it.

-- The customers: a small SQLite database. A lookup asks it for just the keys that a query needs.
CREATE OR REPLACE TEMPORARY TABLE customers (
  id BIGINT, name STRING, country STRING, PRIMARY KEY (id) NOT ENFORCED
) WITH ('connector' = 'sqlite', 'path' = '{folder}/customers.sqlite');

-- The orders: files in a folder. Whoever writes a file into it makes the stream longer.
CREATE TABLE IF NOT EXISTS orders (id BIGINT, customer BIGINT, total DECIMAL(9, 2))
USING json LOCATION '{folder}/orders';

-- A lookup join is written as any other join.
SELECT o.id, o.total, c.name, c.country
FROM orders AS o LEFT JOIN customers AS c ON o.customer = c.id
ORDER BY o.id;

-- A row may come late. This asks again, each half second, for the keys that found nothing.
SELECT /*+ LOOKUP('table' = 'c', 'retry-predicate' = 'lookup_miss', 'retry-strategy' = 'fixed_delay',
                  'fixed-delay' = '500 ms', 'max-attempts' = '60') */
       o.id, o.total, c.name, c.country
FROM orders AS o LEFT JOIN customers AS c ON o.customer = c.id
ORDER BY o.id;

-- The same over a stream: each file once, into Parquet. A second run goes on behind the last file.
SET lookup.stream.name = enriched;
SET lookup.stream.checkpoint = {folder}/checkpoint;
SET lookup.stream.trigger = available-now;

INSERT INTO parquet.`{folder}/enriched`
SELECT o.id, o.total, c.name, c.country
FROM STREAM orders WITH ('maxFilesPerTrigger' = '1') AS o
LEFT JOIN customers AS c ON o.customer = c.id;

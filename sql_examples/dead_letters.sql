-- A source that is down, and keys that are asked again when it is back.
--
--     lookup-hints run sql_examples/dead_letters.sql
--
-- A lookup that fails for good fails its statement. With 'on-error' = 'dead-letter' the key is written to a
-- folder, with the error and the time, and the statement goes on.

-- Nobody answers at this address.
CREATE OR REPLACE TEMPORARY TABLE customers (
  id BIGINT, name STRING,
  PRIMARY KEY (id) NOT ENFORCED
) WITH (
  'connector' = 'http', 'url' = 'http://localhost:9/customers/{id}'
);

CREATE OR REPLACE TEMPORARY VIEW orders AS
SELECT * FROM VALUES (101, 1L), (102, 2L), (103, 1L), (104, 3L) AS orders (order_id, customer_id);

-- The rows whose lookup failed have NULL, as if the customer were not there; with 'dead-letter.then' = 'skip' they
-- would be left out. More than 1,000 failed keys in one task fail the statement all the same.
SELECT /*+ LOOKUP('table' = 'c', 'on-error' = 'dead-letter', 'dead-letter.path' = '/tmp/lookup_dead_letters',
                  'max-errors' = '1000') */
       o.order_id, c.name
FROM orders AS o
LEFT JOIN customers AS c ON o.customer_id = c.id
ORDER BY o.order_id;

SELECT DISTINCT table, key, error_class, attempts FROM parquet.`/tmp/lookup_dead_letters` ORDER BY key;

-- The source is back.
CREATE OR REPLACE TEMPORARY TABLE customers (
  id BIGINT, name STRING,
  PRIMARY KEY (id) NOT ENFORCED
) WITH (
  'connector' = 'memory',
  'rows' = '[{"id": 1, "name": "Ada"}, {"id": 2, "name": "Emmy"}, {"id": 3, "name": "Grace"}]'
);

-- The letters are asked again, each key once.
CREATE OR REPLACE TEMPORARY VIEW letters AS
SELECT DISTINCT from_json(key, 'id BIGINT').id AS id
FROM parquet.`/tmp/lookup_dead_letters`
WHERE table = 'customers';

SELECT /*+ LOOKUP('table' = 'c', 'timeout' = '1 min') */ l.id, c.name
FROM letters AS l
JOIN customers AS c ON l.id = c.id
ORDER BY l.id;

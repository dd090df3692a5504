-- A row that comes late: the order is here, the customer who placed it is not yet.
--
--     lookup-hints run sql_examples/late_row.sql
--
-- Where two systems are fed by different roads, a lookup can be too early. A retry asks again for the keys
-- that were missed; all the other rows go on meanwhile.

CREATE OR REPLACE TEMPORARY TABLE customers (
  id BIGINT, name STRING, country STRING,
  PRIMARY KEY (id) NOT ENFORCED
) WITH (
  'connector' = 'memory',
  'rows' = '[{"id": 1, "name": "Ada", "country": "GB"}, {"id": 2, "name": "Emmy", "country": "DE"}]'
);

CREATE OR REPLACE TEMPORARY VIEW orders AS
SELECT * FROM VALUES (101, 1L, 20.0), (102, 2L, 35.5), (103, 3L, 12.0) AS orders (order_id, customer_id, total);

-- Customer 3 is a miss, so it is asked for again after one second, and once more: 'max-attempts' counts
-- the retries, three lookups in all. Here the row never comes and the LEFT JOIN pads it with NULL. Over a
-- real database, a row that is inserted meanwhile would be found.
--
-- A country other than GB is not a miss: the residual condition is checked on what was found, so customer 2
-- is not asked for again.
SELECT /*+ LOOKUP('table' = 'c', 'retry-predicate' = 'lookup_miss', 'retry-strategy' = 'fixed_delay',
                  'fixed-delay' = '1 s', 'max-attempts' = '2') */
       o.order_id, o.total, c.name
FROM orders AS o
LEFT JOIN customers AS c ON o.customer_id = c.id AND c.country = upper('gb')
ORDER BY o.order_id;

-- Waiting longer each time is kinder to a source in trouble, and a failure can be asked again as well:
-- 0.2 s, 0.4 s, 0.8 s, give or take a tenth, and never longer than 30 s for one key altogether. What still
-- fails then would fail the job; with 'on-error' = 'null' it counts as a miss.
SELECT /*+ LOOKUP('table' = 'c', 'retry-predicate' = 'lookup_miss, exception',
                  'retry-strategy' = 'exponential_delay', 'initial-backoff' = '200 ms', 'max-attempts' = '3',
                  'timeout' = '30 s', 'on-error' = 'null') */
       o.order_id, o.total, c.name
FROM orders AS o
LEFT JOIN customers AS c ON o.customer_id = c.id
ORDER BY o.order_id;

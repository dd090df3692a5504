-- Two ways to ask: one request after the other, or many at once.
--
--     lookup-hints run sql_examples/sync_and_async.sql
--
-- A connector can be sync, async or both. Without a hint a lookup is async where the connector can be.
-- 'async' is a wish: a connector that cannot fulfil it is asked the way it can, and EXPLAIN says so:
--
--     lookup-hints explain sql_examples/sync_and_async.sql

CREATE OR REPLACE TEMPORARY TABLE products (
  code STRING, title STRING, price DECIMAL(8, 2),
  PRIMARY KEY (code) NOT ENFORCED
) WITH (
  'connector' = 'memory',
  'rows' = '[{"code": "tea", "title": "Assam", "price": "4.50"},
             {"code": "tea", "title": "Darjeeling", "price": "6.00"},
             {"code": "mug", "title": "Mug", "price": "8.25"}]'
);

CREATE OR REPLACE TEMPORARY VIEW cart AS
SELECT * FROM VALUES (1, 'tea'), (2, 'mug'), (3, 'jam'), (4, CAST(NULL AS STRING)) AS cart (line, code);

-- Sync: a task waits for each request. Right for a local file or a library that knows no async.
-- A key with several rows gives several rows, as in any join; a NULL key is never asked for.
SELECT /*+ LOOKUP('table' = 'p', 'async' = 'false') */
       cart.line, p.title, p.price
FROM cart
JOIN products AS p ON cart.code = p.code
ORDER BY cart.line, p.title;

-- Async: up to 'capacity' requests of a task are under way at once. With 'allow_unordered' a slow one at
-- the head never stops new ones; the rows come out in their order in either mode.
SELECT /*+ LOOKUP('table' = 'p', 'async' = 'true', 'capacity' = '20', 'output-mode' = 'allow_unordered') */
       cart.line, p.title, p.price
FROM cart
LEFT JOIN products FOR SYSTEM_TIME AS OF current_timestamp() AS p ON cart.code = p.code
ORDER BY cart.line, p.title;

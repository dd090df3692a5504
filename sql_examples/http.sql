-- Lookups in an HTTP API.
--
--     python sql_examples/http_api.py            starts a small API here, and runs this file against it
--
-- Against an API of your own, run it with:
--
--     API=https://api.example.com lookup-hints run sql_examples/http.sql

-- One request per customer. The key is encoded for its place; the name of a column is its path in the response
-- unless 'path.<column>' gives another one.
CREATE OR REPLACE TEMPORARY TABLE customers (id BIGINT, name STRING, city STRING, tags ARRAY<STRING>)
WITH (
  'connector' = 'http',
  'url' = '${env:API}/customers/{id}',
  'path.city' = 'address.city'
);

-- Many prices per request, in a currency that each order chooses: a column that only feeds the request.
CREATE OR REPLACE TEMPORARY TABLE prices (sku STRING, currency STRING, price DECIMAL(10, 2))
WITH (
  'connector' = 'http',
  'url' = '${env:API}/prices?skus={sku}&currency={currency}',
  'rows' = 'prices',
  'keys-per-request' = '50',
  'list-columns' = 'sku'
);

CREATE OR REPLACE TEMPORARY VIEW orders AS
SELECT * FROM VALUES (101, 1L, 'tea', 'eur'), (102, 2L, 'cup', 'usd'), (103, 3L, 'tea', 'usd'), (104, 9L, 'pot', 'eur')
  AS orders (order_id, customer_id, sku, currency);

-- The API asks for patience now and then (429): the request waits, and nothing fails. Customer 3 fails at first
-- with a 500 and is asked again, alone; customer 9 does not exist, which is a miss.
SELECT /*+ LOOKUP('table' = 'c', 'capacity' = '50', 'retry-predicate' = 'exception',
                  'retry-strategy' = 'exponential_delay', 'initial-backoff' = '100 ms', 'max-attempts' = '3'),
           LOOKUP('table' = 'p', 'async' = 'true') */
       o.order_id, c.name, c.city, p.price, p.currency
FROM orders AS o
LEFT JOIN customers AS c ON o.customer_id = c.id
LEFT JOIN prices AS p ON o.sku = p.sku AND upper(o.currency) = p.currency
ORDER BY o.order_id;

-- How each lookup ended, as columns: with 'outcome-rows' a miss and an error have a row of their own.
CREATE OR REPLACE TEMPORARY TABLE outcomes (id BIGINT, name STRING, outcome STRING, status INT, error STRING)
WITH (
  'connector' = 'http',
  'url' = '${env:API}/fragile/{id}',
  'path.outcome' = '$outcome', 'path.status' = '$status', 'path.error' = '$error',
  'outcome-rows' = 'true', 'on-error' = 'null'
);

SELECT o.order_id, r.outcome, r.status, r.error
FROM orders AS o
LEFT JOIN outcomes AS r ON o.customer_id = r.id
ORDER BY o.order_id;

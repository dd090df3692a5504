-- Lookups in Redis or Valkey.
--
--     export REDIS_URL='redis://localhost:6379/0'      (with a user: redis://user:password@host, with TLS: rediss://)
--     lookup-hints run sql_examples/redis.sql
--
-- It wants some keys there:
--
--     HSET customer:1 name Ada country GB
--     HSET customer:2 name Emmy country DE
--     SET  stock:tea:GB 7
--     SET  baskets:1 '[{"sku": "tea", "pieces": 2}, {"sku": "cup", "pieces": 1}]'

-- A hash is a row: its fields are the columns. Only those that a query needs are asked for.
CREATE OR REPLACE TEMPORARY TABLE customers (id BIGINT, name STRING, country STRING, PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector' = 'redis', 'url' = '${env:REDIS_URL}', 'key' = 'customer:{id}');

-- A string is one column; several columns may make a key.
CREATE OR REPLACE TEMPORARY TABLE stock (sku STRING, country STRING, pieces INT)
WITH ('connector' = 'redis', 'url' = '${env:REDIS_URL}', 'key' = 'stock:{sku}:{country}', 'value-type' = 'string');

-- JSON: an object is a row, an array of objects many.
CREATE OR REPLACE TEMPORARY TABLE baskets (customer BIGINT, sku STRING, count INT)
WITH (
  'connector' = 'redis', 'url' = '${env:REDIS_URL}', 'key' = 'baskets:{customer}', 'value-type' = 'json',
  'field.count' = 'pieces'
);

CREATE OR REPLACE TEMPORARY VIEW visits AS SELECT 1 + id % 3 AS customer_id FROM range(6);

-- A customer who comes late is waited for; the visits of the others go on meanwhile.
SELECT /*+ LOOKUP('table' = 'c', 'retry-predicate' = 'lookup_miss', 'retry-strategy' = 'fixed_delay',
                  'fixed-delay' = '200 ms', 'max-attempts' = '2') */
       v.customer_id, c.name, b.sku, b.count, s.pieces AS in_stock
FROM visits AS v
LEFT JOIN customers AS c ON v.customer_id = c.id
LEFT JOIN baskets AS b ON v.customer_id = b.customer
LEFT JOIN stock AS s ON b.sku = s.sku AND c.country = s.country
ORDER BY v.customer_id, b.sku;

-- Lookups in PostgreSQL.
--
--     export CUSTOMERS_DSN='postgresql://reader:...@localhost:5432/shop'
--     lookup-hints run sql_examples/postgres.sql --param country=DE
--
-- It wants a table there:
--
--     CREATE TABLE customers (id bigint PRIMARY KEY, name text, country text, zip text);
--     INSERT INTO customers VALUES (1, 'Ada', 'GB', 'W1'), (2, 'Emmy', 'DE', '91054');

-- '${env:CUSTOMERS_DSN}' is read late, on the machine that connects, and shown nowhere: not by EXPLAIN, not
-- in the plan or the Spark UI, not in errors. On a cluster the workers need the variable too; '${file:...}'
-- reads a mounted secret, '${conf:...}' a key of Spark's configuration.
--
-- There is no column list: the database is asked for the columns and the key when the table is created.
CREATE OR REPLACE TEMPORARY TABLE customers
WITH ('connector' = 'postgres', 'url' = '${env:CUSTOMERS_DSN}', 'table-name' = 'customers');

DESCRIBE customers;

CREATE OR REPLACE TEMPORARY VIEW orders AS
SELECT id AS order_id, 1 + id % 3 AS customer_id, round(10 + 0.1 * id, 2) AS total FROM range(1000);

-- A thousand orders, three customers: each key of a batch is asked for once. The condition on the country is
-- checked on what was found; as it is not a part of the primary key, a customer of another country is not a miss.
SELECT /*+ LOOKUP('table' = 'c', 'async' = 'true', 'capacity' = '4') */
       c.name, c.zip, count(*) AS orders, sum(o.total) AS total
FROM orders AS o
JOIN customers AS c ON o.customer_id = c.id AND c.country = :country
GROUP BY c.name, c.zip
ORDER BY total DESC;

-- Orders of customers that the database does not know.
SELECT count(*) AS orphans
FROM orders AS o
LEFT JOIN customers AS c ON o.customer_id = c.id
WHERE c.id IS NULL;

-- case: in a subquery
SELECT * FROM (SELECT o.id, c.name FROM orders o JOIN customers c ON o.k = c.id) s WHERE s.name > 'a'
-- becomes:
SELECT * FROM (SELECT o.id, c.name FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c) s WHERE s.name > 'a'

-- case: in a CTE
WITH q AS (SELECT o.id, c.name FROM orders o JOIN customers c ON o.k = c.id) SELECT name FROM q
-- becomes:
WITH q AS (SELECT o.id, c.name FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c) SELECT name FROM q

-- case: in a CTE that is read twice it is computed once
WITH q AS (SELECT o.id, c.name FROM orders o JOIN customers c ON o.k = c.id) SELECT * FROM q a JOIN q b ON a.id = b.id
-- becomes:
WITH q AS (SELECT o.id, c.name FROM orders o LATERAL VIEW inline(ask_customers_once(o.k)) c) SELECT * FROM q a JOIN q b ON a.id = b.id

-- case: a CTE read once by a CTE read twice
WITH q AS (SELECT o.id, c.name FROM orders o JOIN customers c ON o.k = c.id), p AS (SELECT * FROM q) SELECT * FROM p a JOIN p b ON a.id = b.id
-- becomes:
WITH q AS (SELECT o.id, c.name FROM orders o LATERAL VIEW inline(ask_customers_once(o.k)) c), p AS (SELECT * FROM q) SELECT * FROM p a JOIN p b ON a.id = b.id

-- case: a CTE hides a lookup table of its name
WITH customers AS (SELECT 1 AS id) SELECT * FROM orders o JOIN customers c ON o.k = c.id JOIN rates r ON r.kind = o.kind
-- becomes:
WITH customers AS (SELECT 1 AS id) SELECT * FROM orders o JOIN customers c ON o.k = c.id LATERAL VIEW inline(ask_rates(o.kind)) r

-- case: a CTE does not see itself, so its body reads the lookup table
WITH customers AS (SELECT o.id, c.name FROM orders o JOIN customers c ON o.k = c.id) SELECT * FROM customers
-- becomes:
WITH customers AS (SELECT o.id, c.name FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c) SELECT * FROM customers

-- case: insert
INSERT INTO TABLE t PARTITION (d = 1) (a, b) SELECT o.id, c.name FROM orders o JOIN customers c ON o.k = c.id
-- becomes:
INSERT INTO TABLE t PARTITION (d = 1) (a, b) SELECT o.id, c.name FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c

-- case: insert overwrite of a parenthesised query
INSERT OVERWRITE t (SELECT o.id, c.name FROM orders o JOIN customers c ON o.k = c.id)
-- becomes:
INSERT OVERWRITE t (SELECT o.id, c.name FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c)

-- case: create table as select
CREATE TABLE t USING parquet AS SELECT o.id, c.name FROM orders o JOIN customers c ON o.k = c.id
-- becomes:
CREATE TABLE t USING parquet AS SELECT o.id, c.name FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c

-- case: temporary view
CREATE OR REPLACE TEMPORARY VIEW v AS SELECT o.id, c.name FROM orders o JOIN customers c ON o.k = c.id
-- becomes:
CREATE OR REPLACE TEMPORARY VIEW v AS SELECT o.id, c.name FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c

-- case: each branch of a union
SELECT c.name FROM orders o JOIN customers c ON o.k = c.id UNION ALL SELECT c.zip FROM orders o LEFT JOIN customers c ON o.j = c.id
-- becomes:
SELECT c.name FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c UNION ALL SELECT c.zip FROM orders o LATERAL VIEW OUTER inline(ask_customers(o.j)) c

-- case: a subquery in WHERE with a lookup of its own
SELECT * FROM orders o WHERE o.k IN (SELECT i.k FROM items i JOIN customers c ON i.k = c.id WHERE c.zip > 'a')
-- becomes:
SELECT * FROM orders o WHERE o.k IN (SELECT i.k FROM items i LATERAL VIEW inline(ask_customers(i.k)) c WHERE c.zip > 'a')

-- case: a lookup inside the key of a lookup
SELECT c.name FROM orders o JOIN customers c ON c.id = (SELECT max(d.id) FROM items i JOIN customers d ON i.k = d.id)
-- becomes:
SELECT c.name FROM orders o LATERAL VIEW inline(ask_customers((SELECT max(d.id) FROM items i LATERAL VIEW inline(ask_customers(i.k)) d))) c

-- case: a stream on the left
SELECT o.id, c.name FROM STREAM orders o JOIN customers c ON o.k = c.id
-- becomes:
SELECT o.id, c.name FROM STREAM orders o LATERAL VIEW inline(ask_customers(o.k)) c

-- case: read outside a join
SELECT name, zip FROM customers WHERE country = 'US'
-- becomes:
SELECT name, zip FROM (SELECT inline(ask_customers('US'))) AS customers WHERE true

-- case: read outside a join with an alias and a star
SELECT * FROM customers AS c
-- becomes:
SELECT * FROM scan_customers__id_name_country_zip_address AS c

-- case: a view that stays
CREATE VIEW v AS SELECT o.id, c.name FROM orders o JOIN customers c ON o.k = c.id
-- refused:
line 1, column 1: A view that outlives the session cannot hold a lookup join: the lookup does not outlive it. Write CREATE TEMPORARY VIEW.
CREATE VIEW v AS SELECT o.id, c.name FROM orders o JOIN customers c ON o.k = c.id
^^^^^^

-- case: a table that cannot be read whole
SELECT * FROM rates
-- refused:
line 1, column 15: rates cannot be read whole: connector 'async' answers keys only. Put it on the right side of a JOIN with an equality.
SELECT * FROM rates
              ^^^^^

-- case: pipe syntax
FROM orders o |> JOIN customers c ON o.k = c.id |> SELECT c.name
-- becomes:
FROM orders o |> EXTEND explode(ask_customers(o.k)) AS `__lookup_1` |> JOIN LATERAL (SELECT `__lookup_1`.*) AS c |> DROP `__lookup_1` |> SELECT c.name

-- case: merge
MERGE INTO t USING (SELECT o.id FROM orders o JOIN customers c ON o.k = c.id) s ON t.id = s.id WHEN MATCHED THEN DELETE
-- becomes:
MERGE INTO t USING (SELECT o.id FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c) s ON t.id = s.id WHEN MATCHED THEN DELETE

-- case: AS may be left out of a CTE
WITH q (SELECT * FROM orders), r (a, b) AS (SELECT 1, 2) SELECT c.name FROM q JOIN customers c ON q.k = c.id
-- becomes:
WITH q (SELECT * FROM orders), r (a, b) AS (SELECT 1, 2) SELECT c.name FROM q LATERAL VIEW inline(ask_customers(q.k)) c

-- case: the query of a CREATE needs no AS
CREATE TABLE t USING parquet SELECT o.id, c.name FROM orders AS o JOIN customers AS c ON o.k = c.id
-- becomes:
CREATE TABLE t USING parquet SELECT o.id, c.name FROM orders AS o LATERAL VIEW inline(ask_customers(o.k)) c

-- case: stored as
CREATE TABLE IF NOT EXISTS t STORED AS PARQUET AS SELECT c.name FROM orders AS o JOIN customers AS c ON o.k = c.id
-- becomes:
CREATE TABLE IF NOT EXISTS t STORED AS PARQUET AS SELECT c.name FROM orders AS o LATERAL VIEW inline(ask_customers(o.k)) c

-- case: insert into a directory
INSERT OVERWRITE LOCAL DIRECTORY '/tmp/x' USING parquet SELECT c.name FROM orders AS o JOIN customers AS c ON o.k = c.id
-- becomes:
INSERT OVERWRITE LOCAL DIRECTORY '/tmp/x' USING parquet SELECT c.name FROM orders AS o LATERAL VIEW inline(ask_customers(o.k)) c

-- case: insert after with
WITH q AS (SELECT 1) INSERT INTO t SELECT c.name FROM orders AS o JOIN customers AS c ON o.k = c.id
-- becomes:
WITH q AS (SELECT 1) INSERT INTO t SELECT c.name FROM orders AS o LATERAL VIEW inline(ask_customers(o.k)) c

-- case: insert into a lookup table
INSERT INTO customers SELECT 1
-- refused:
line 1, column 13: customers is a lookup table: it is asked, never written to.
INSERT INTO customers SELECT 1
            ^^^^^^^^^

-- case: a view of a lookup table's name
CREATE OR REPLACE TEMPORARY VIEW customers AS SELECT 1 AS id
-- refused:
line 1, column 34: customers is the name of a lookup table; drop that first, or choose another name.
CREATE OR REPLACE TEMPORARY VIEW customers AS SELECT 1 AS id
                                 ^^^^^^^^^

-- case: a recursive CTE around a lookup
WITH RECURSIVE r(n) AS (SELECT 1L UNION ALL (WITH x AS (SELECT * FROM r) SELECT x.n + 1 FROM x JOIN customers c ON x.n = c.id)) SELECT * FROM r
-- becomes:
WITH RECURSIVE r(n) AS (SELECT 1L UNION ALL (WITH x AS (SELECT * FROM r) SELECT x.n + 1 FROM x LATERAL VIEW inline(ask_customers(x.n)) c)) SELECT * FROM r

-- case: a comment that goes on behind a backslash
SELECT c.name -- this \
 goes on
FROM orders o JOIN customers c ON o.k = c.id
-- becomes:
SELECT c.name -- this \
 goes on
FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c

-- case: a LATERAL subquery in a CTE that is read twice: Spark takes no function there that runs once
WITH q AS (SELECT o.id, x.name FROM orders o, LATERAL (SELECT name FROM customers c WHERE c.id = o.k) x) SELECT * FROM q a JOIN q b ON a.id = b.id
-- becomes:
WITH q AS (SELECT o.id, x.name FROM orders o, LATERAL (SELECT name FROM (SELECT inline(ask_customers(o.k))) AS c WHERE true) x) SELECT * FROM q a JOIN q b ON a.id = b.id

-- case: a CTE that is read twice, once by a LATERAL subquery
WITH q AS (SELECT o.id, c.name FROM orders o JOIN customers c ON o.k = c.id) SELECT * FROM items i, LATERAL (SELECT name FROM q WHERE q.id = i.id) x JOIN q ON q.id = i.id
-- becomes:
WITH q AS (SELECT o.id, c.name FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c) SELECT * FROM items i, LATERAL (SELECT name FROM q WHERE q.id = i.id) x JOIN q ON q.id = i.id

-- case: a CTE read by a CTE that a LATERAL subquery reads
WITH q AS (SELECT o.id, c.name FROM orders o JOIN customers c ON o.k = c.id), p AS (SELECT a.name FROM q a JOIN q b ON a.id = b.id) SELECT * FROM items i, LATERAL (SELECT name FROM p WHERE p.name = i.name) x
-- becomes:
WITH q AS (SELECT o.id, c.name FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c), p AS (SELECT a.name FROM q a JOIN q b ON a.id = b.id) SELECT * FROM items i, LATERAL (SELECT name FROM p WHERE p.name = i.name) x

-- case: a CTE of a subquery that it reads twice
SELECT * FROM items i WHERE EXISTS (WITH q AS (SELECT o.id, c.name FROM orders o JOIN customers c ON o.k = c.id) SELECT 1 FROM q a JOIN q b ON a.id = b.id WHERE a.id = i.id)
-- becomes:
SELECT * FROM items i WHERE EXISTS (WITH q AS (SELECT o.id, c.name FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c) SELECT 1 FROM q a JOIN q b ON a.id = b.id WHERE a.id = i.id)

-- case: a CTE of a derived table that it reads twice
SELECT * FROM (WITH q AS (SELECT o.id, c.name FROM orders o JOIN customers c ON o.k = c.id) SELECT a.name FROM q a JOIN q b ON a.id = b.id) x
-- becomes:
SELECT * FROM (WITH q AS (SELECT o.id, c.name FROM orders o LATERAL VIEW inline(ask_customers_once(o.k)) c) SELECT a.name FROM q a JOIN q b ON a.id = b.id) x

-- case: a CTE that is read twice, once in ON: Spark takes no function there that runs once
WITH q AS (SELECT o.id, c.name FROM orders o JOIN customers c ON o.k = c.id) SELECT * FROM q a JOIN items i ON i.id = (SELECT max(id) FROM q)
-- becomes:
WITH q AS (SELECT o.id, c.name FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c) SELECT * FROM q a JOIN items i ON i.id = (SELECT max(id) FROM q)

-- case: a CTE that is read twice, once in ORDER BY
WITH q AS (SELECT o.id, c.name FROM orders o JOIN customers c ON o.k = c.id) SELECT name FROM q ORDER BY id > (SELECT avg(id) FROM q) LIMIT 3
-- becomes:
WITH q AS (SELECT o.id, c.name FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c) SELECT name FROM q ORDER BY id > (SELECT avg(id) FROM q) LIMIT 3

-- case: a CTE that is read twice, once in a call
WITH q AS (SELECT o.id, c.name FROM orders o JOIN customers c ON o.k = c.id) SELECT max(id - (SELECT min(id) FROM q)) FROM q
-- becomes:
WITH q AS (SELECT o.id, c.name FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c) SELECT max(id - (SELECT min(id) FROM q)) FROM q

-- case: a CTE that is read twice, once in WHERE
WITH q AS (SELECT o.id, c.name FROM orders o JOIN customers c ON o.k = c.id) SELECT name FROM q WHERE id > (SELECT avg(id) FROM q)
-- becomes:
WITH q AS (SELECT o.id, c.name FROM orders o LATERAL VIEW inline(ask_customers_once(o.k)) c) SELECT name FROM q WHERE id > (SELECT avg(id) FROM q)

-- case: a CTE that is read twice, once in the SELECT list
WITH q AS (SELECT o.id, c.name FROM orders o JOIN customers c ON o.k = c.id) SELECT name, (SELECT avg(id) FROM q) FROM q
-- becomes:
WITH q AS (SELECT o.id, c.name FROM orders o LATERAL VIEW inline(ask_customers_once(o.k)) c) SELECT name, (SELECT avg(id) FROM q) FROM q

-- case: a lookup join in a subquery of ON, in a CTE that is read twice
WITH q AS (SELECT i.id FROM items i LEFT SEMI JOIN zips z ON z.zip = i.zip AND EXISTS (SELECT 1 FROM orders o JOIN customers c ON o.k = c.id)) SELECT * FROM q a JOIN q b ON a.id = b.id
-- becomes:
WITH q AS (SELECT i.id FROM items i LEFT SEMI JOIN zips z ON z.zip = i.zip AND EXISTS (SELECT 1 FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c)) SELECT * FROM q a JOIN q b ON a.id = b.id

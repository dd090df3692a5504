-- case: a derived table over a lookup table is asked, its filter is a condition on the rows found
SELECT o.id, d.name FROM orders o JOIN (SELECT id, name FROM customers WHERE country = 'US') d ON o.k = d.id
-- becomes:
SELECT o.id, d.name FROM orders o LATERAL VIEW inline(transform(filter(ask_customers(o.k), `__lookup_row` -> (`__lookup_row`.`country` = 'US')), `__lookup_row` -> named_struct('name', `__lookup_row`.`name`))) d

-- case: columns that are only renamed need no work
SELECT o.id, d.n FROM orders o LEFT JOIN (SELECT name AS n, id AS cid FROM customers) d ON o.k = d.cid
-- becomes:
SELECT o.id, d.n FROM orders o LATERAL VIEW OUTER inline(ask_customers(o.k)) d AS `n`

-- case: what is computed sees only rows that were found
SELECT o.id, d.z FROM orders o LEFT JOIN (SELECT id, coalesce(zip, 'x') AS z FROM customers c WHERE c.country = 'US') d ON o.k = d.id AND d.z > o.x
-- becomes:
SELECT o.id, d.z FROM orders o LATERAL VIEW OUTER inline(filter(transform(filter(ask_customers(o.k), `__lookup_row` -> (`__lookup_row`.`country` = 'US')), `__lookup_row` -> named_struct('z', coalesce(`__lookup_row`.`zip`, 'x'))), `__lookup_row` -> (`__lookup_row`.`z` > o.x))) d

-- case: derived tables in derived tables
SELECT o.id, a.y FROM orders o JOIN (SELECT x.id, x.y FROM (SELECT id, upper(name) AS y FROM customers WHERE zip > 'c') x WHERE y > 'A') a ON o.k = a.id
-- becomes:
SELECT o.id, a.y FROM orders o LATERAL VIEW inline(transform(filter(ask_customers(o.k), `__lookup_row` -> (`__lookup_row`.`zip` > 'c') AND ((upper(`__lookup_row`.`name`)) > 'A')), `__lookup_row` -> named_struct('y', (upper(`__lookup_row`.`name`))))) a

-- case: a CTE is asked by all that read it, and nobody reads it
WITH q AS (SELECT id, name FROM customers) SELECT o.id, q.name FROM orders o LEFT JOIN q ON q.id = o.k
-- becomes:
WITH q AS (SELECT id, name FROM (SELECT CAST(NULL AS BIGINT) AS `id`, CAST(NULL AS STRING) AS `name`, CAST(NULL AS STRING) AS `country`, CAST(NULL AS STRING) AS `zip`, CAST(NULL AS STRUCT<`city`: STRING>) AS `address` WHERE raise_error('customers is asked by key, and not read here') IS NOT NULL) AS customers) SELECT o.id, q.name FROM orders o LATERAL VIEW OUTER inline(ask_customers(o.k)) q

-- case: a CTE is asked here and read there
WITH q AS (SELECT id, zip FROM customers) SELECT o.id FROM orders o JOIN q a ON a.id = o.k RIGHT JOIN q b ON b.zip = a.zip
-- becomes:
WITH q AS (SELECT id, zip FROM scan_customers__id_zip AS customers) SELECT o.id FROM (SELECT struct(o.*) AS `__lookup_1`, struct(a.*) AS `__lookup_2` FROM orders o LATERAL VIEW inline(ask_customers(o.k)) a) AS `__lookup_3` JOIN LATERAL (SELECT `__lookup_1`.*) AS o JOIN LATERAL (SELECT `__lookup_2`.*) AS a RIGHT JOIN q b ON b.zip = a.zip

-- case: the columns that a WITH names
WITH q (i, n) AS (SELECT id, name FROM customers) SELECT q.n FROM orders o, q WHERE o.k = q.i
-- becomes:
WITH q (i, n) AS (SELECT id, name FROM (SELECT CAST(NULL AS BIGINT) AS `id`, CAST(NULL AS STRING) AS `name`, CAST(NULL AS STRING) AS `country`, CAST(NULL AS STRING) AS `zip`, CAST(NULL AS STRUCT<`city`: STRING>) AS `address` WHERE raise_error('customers is asked by key, and not read here') IS NOT NULL) AS customers) SELECT q.n FROM orders o LATERAL VIEW inline(ask_customers(o.k)) q AS `i`, `n` WHERE o.k = q.i

-- case: on the left side of a join, with EXCEPT
SELECT d.name FROM (SELECT * EXCEPT (zip) FROM customers) d JOIN orders o ON o.k = d.id
-- becomes:
SELECT d.name FROM orders o LATERAL VIEW inline(ask_customers(o.k)) d

-- case: USING
SELECT id, d.name FROM orders o LEFT JOIN (SELECT name, id FROM customers) d USING (id)
-- becomes:
SELECT id, d.name FROM orders o LATERAL VIEW OUTER inline(ask_customers(id)) d AS `name`, `__lookup_using_id`

-- case: EXISTS
SELECT * FROM orders o WHERE EXISTS (SELECT 1 FROM (SELECT id i, zip z FROM customers WHERE name > 'b') d WHERE d.i = o.k AND d.z > o.z)
-- becomes:
SELECT * FROM orders o LATERAL VIEW inline(slice(array(struct()), 1, int(size(filter(transform(filter(ask_customers(o.k), `__lookup_row` -> (`__lookup_row`.`name` > 'b')), `__lookup_row` -> named_struct('z', `__lookup_row`.`zip`)), `__lookup_row` -> (`__lookup_row`.`z` > o.z))) > 0))) `__lookup_semi_1` WHERE true

-- case: in pipe syntax
FROM orders o |> JOIN (SELECT id i, name FROM customers) d ON o.k = d.i |> SELECT d.name
-- becomes:
FROM orders o |> EXTEND explode(transform(ask_customers(o.k), `__lookup_row` -> named_struct('name', `__lookup_row`.`name`))) AS `__lookup_1` |> JOIN LATERAL (SELECT `__lookup_1`.*) AS d |> DROP `__lookup_1` |> SELECT d.name

-- case: a constant
SELECT n FROM (SELECT name AS n, id FROM customers) d WHERE d.id = 5
-- becomes:
SELECT n FROM (SELECT inline(ask_customers(5))) AS d(`n`) WHERE true

-- case: a hint names the derived table
SELECT /*+ LOOKUP('table'='d', 'capacity'='7') */ d.id FROM orders o JOIN (SELECT id FROM customers) d ON o.k = d.id
-- becomes:
SELECT  d.id FROM orders o LATERAL VIEW inline(ask_customers(o.k)) d

-- case: a hint inside the derived table names the lookup table
SELECT d.id FROM orders o JOIN (SELECT /*+ LOOKUP('table'='c', 'capacity'='7') */ id FROM customers c) d ON o.k = d.id
-- becomes:
SELECT d.id FROM orders o LATERAL VIEW inline(ask_customers(o.k)) d

-- case: DISTINCT is not looked through
SELECT d.id FROM orders o JOIN (SELECT DISTINCT id FROM customers) d ON o.k = d.id
-- becomes:
SELECT d.id FROM orders o JOIN (SELECT DISTINCT id FROM scan_customers__id AS customers) d ON o.k = d.id

-- case: an aggregate is not looked through
SELECT d.n FROM orders o JOIN (SELECT id, count(*) AS n FROM customers GROUP BY id) d ON o.k = d.id
-- becomes:
SELECT d.n FROM orders o JOIN (SELECT id, count(*) AS n FROM scan_customers__id AS customers GROUP BY id) d ON o.k = d.id

-- case: LIMIT is not looked through
SELECT d.id FROM orders o JOIN (SELECT id FROM customers LIMIT 3) d ON o.k = d.id
-- becomes:
SELECT d.id FROM orders o JOIN (SELECT id FROM scan_customers__id AS customers LIMIT 3) d ON o.k = d.id

-- case: a window is not looked through
SELECT d.r FROM orders o JOIN (SELECT id, rank() OVER (ORDER BY zip) AS r FROM customers) d ON o.k = d.id
-- becomes:
SELECT d.r FROM orders o JOIN (SELECT id, rank() OVER (ORDER BY zip) AS r FROM scan_customers__id_zip AS customers) d ON o.k = d.id

-- case: a set operation is not looked through
SELECT d.id FROM orders o JOIN (SELECT id FROM customers UNION ALL SELECT 1) d ON o.k = d.id
-- becomes:
SELECT d.id FROM orders o JOIN (SELECT id FROM scan_customers__id AS customers UNION ALL SELECT 1) d ON o.k = d.id

-- case: what is random is not looked through
SELECT d.r FROM orders o JOIN (SELECT id, rand() AS r FROM customers) d ON o.k = d.id
-- becomes:
SELECT d.r FROM orders o JOIN (SELECT id, rand() AS r FROM scan_customers__id AS customers) d ON o.k = d.id

-- case: a function that may be the user's is not looked through
SELECT d.r FROM orders o JOIN (SELECT id, mine(name) AS r FROM customers) d ON o.k = d.id
-- becomes:
SELECT d.r FROM orders o JOIN (SELECT id, mine(name) AS r FROM scan_customers__id_name AS customers) d ON o.k = d.id

-- case: a subquery is not looked through
SELECT d.id FROM orders o JOIN (SELECT id FROM customers WHERE zip IN (SELECT zip FROM zips)) d ON o.k = d.id
-- becomes:
SELECT d.id FROM orders o JOIN (SELECT id FROM scan_customers__id_zip AS customers WHERE zip IN (SELECT zip FROM zips)) d ON o.k = d.id

-- case: what is computed is no key
SELECT d.i FROM orders o JOIN (SELECT id + 1 AS i FROM customers) d ON o.k = d.i
-- becomes:
SELECT d.i FROM orders o JOIN (SELECT id + 1 AS i FROM scan_customers__id AS customers) d ON o.k = d.i

-- case: a view over a table that answers keys only can be made, for those who ask it by key
CREATE TEMPORARY VIEW euros AS SELECT kind, rate FROM rates WHERE currency > 'E'
-- becomes:
CREATE TEMPORARY VIEW euros AS SELECT kind, rate FROM (SELECT CAST(NULL AS STRING) AS `currency`, CAST(NULL AS STRING) AS `kind`, CAST(NULL AS DOUBLE) AS `rate` WHERE raise_error('rates is asked by key, and not read here') IS NOT NULL) AS rates WHERE currency > 'E'

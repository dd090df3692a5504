-- case: a global sort over a lookup gets a shuffle below it
SELECT o.id, c.name FROM orders o JOIN customers c ON o.k = c.id ORDER BY c.name
-- becomes:
SELECT /*+ REBALANCE */ o.id, c.name FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c ORDER BY c.name

-- case: with LIMIT it needs none
SELECT o.id, c.name FROM orders o JOIN customers c ON o.k = c.id ORDER BY c.name LIMIT 5
-- becomes:
SELECT o.id, c.name FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c ORDER BY c.name LIMIT 5

-- case: with an aggregate it needs none
SELECT c.country, count(*) FROM orders o JOIN customers c ON o.k = c.id GROUP BY c.country ORDER BY c.country
-- becomes:
SELECT c.country, count(*) FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c GROUP BY c.country ORDER BY c.country

-- case: over a subquery
SELECT * FROM (SELECT o.id, c.name FROM orders o JOIN customers c ON o.k = c.id) ORDER BY name
-- becomes:
SELECT /*+ REBALANCE */ * FROM (SELECT o.id, c.name FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c) ORDER BY name

-- case: over a join with a derived table of it
SELECT o.id, d.name FROM orders o LEFT JOIN (SELECT id, name FROM customers) AS d ON o.k = d.id ORDER BY o.id
-- becomes:
SELECT /*+ REBALANCE */ o.id, d.name FROM orders o LATERAL VIEW OUTER inline(ask_customers(o.k)) d ORDER BY o.id

-- case: over one value by key
SELECT o.id, lookup_get('customers', 'name', o.k) AS name FROM orders o ORDER BY o.id
-- becomes:
SELECT /*+ REBALANCE */ o.id, coalesce(__lookup_relation_get_1.`__lookup_relation_get_1_name`) AS name FROM orders o LATERAL VIEW OUTER inline(ask_customers(o.k)) __lookup_relation_get_1 AS `__lookup_relation_get_1_name` ORDER BY o.id

-- case: over a CTE
WITH q AS (SELECT o.id, c.name FROM orders o JOIN customers c ON o.k = c.id) SELECT * FROM q ORDER BY name
-- becomes:
WITH q AS (SELECT o.id, c.name FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c) SELECT /*+ REBALANCE */ * FROM q ORDER BY name

-- case: over a union only the branch with the lookup gets it
SELECT c.name FROM orders o JOIN customers c ON o.k = c.id UNION ALL SELECT zip FROM zips ORDER BY 1
-- becomes:
SELECT /*+ REBALANCE */ c.name FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c UNION ALL SELECT zip FROM zips ORDER BY 1

-- case: a sort of partitions needs none
SELECT c.name FROM orders o JOIN customers c ON o.k = c.id SORT BY name
-- becomes:
SELECT c.name FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c SORT BY name

-- case: an insert that sorts
INSERT INTO t SELECT /*+ LOOKUP('table'='c') */ c.name FROM orders o JOIN customers c ON o.k = c.id ORDER BY name
-- becomes:
INSERT INTO t SELECT /*+ REBALANCE */  c.name FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c ORDER BY name

-- case: LIMIT ALL is not a limit
SELECT o.id, c.name FROM orders o JOIN customers c ON o.k = c.id ORDER BY c.name LIMIT ALL
-- becomes:
SELECT /*+ REBALANCE */ o.id, c.name FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c ORDER BY c.name LIMIT ALL

-- case: the order inside EXISTS means nothing
SELECT * FROM orders o WHERE EXISTS (SELECT 1 FROM orders i JOIN customers c ON i.k = c.id WHERE i.id = o.id ORDER BY c.name)
-- becomes:
SELECT * FROM orders o WHERE EXISTS (SELECT 1 FROM orders i LATERAL VIEW inline(ask_customers(i.k)) c WHERE i.id = o.id ORDER BY c.name)

-- case: a list of constants is asked for, and stays a condition
SELECT * FROM customers WHERE id IN (1, 2, 3)
-- becomes:
SELECT * FROM (SELECT inline(ask_customers(`__lookup_keys`.`0`)) FROM (SELECT explode(array_distinct(arrays_zip(array(1, 2, 3)))) AS `__lookup_keys`)) AS customers WHERE id IN (1, 2, 3)

-- case: OR
SELECT name FROM customers c WHERE (c.id = 1 AND zip > 'a') OR id = 4
-- becomes:
SELECT name FROM (SELECT inline(ask_customers(`__lookup_keys`.`0`)) FROM (SELECT explode(array_distinct(arrays_zip(array(1, 4)))) AS `__lookup_keys`)) AS c WHERE (c.id = 1 AND zip > 'a') OR id = 4

-- case: tuples
SELECT rate FROM rates WHERE (currency, kind) IN (('a', 'x'), ('b', 'y'))
-- becomes:
SELECT rate FROM (SELECT inline(ask_rates(`__lookup_keys`.`0`, `__lookup_keys`.`1`)) FROM (SELECT explode(array_distinct(arrays_zip(array('a', 'b'), array('x', 'y')))) AS `__lookup_keys`)) AS rates WHERE (currency, kind) IN (('a', 'x'), ('b', 'y'))

-- case: a list and a constant
SELECT rate FROM rates WHERE currency IN ('a', 'b') AND kind = 'x'
-- becomes:
SELECT rate FROM (SELECT inline(ask_rates(`__lookup_keys`.`0`, `__lookup_keys`.`1`)) FROM (SELECT explode(array_distinct(arrays_zip(array('a', 'b'), array('x', 'x')))) AS `__lookup_keys`)) AS rates WHERE currency IN ('a', 'b') AND kind = 'x'

-- case: the primary key alone where a list gives it
SELECT name FROM customers WHERE id IN (1, 2) AND zip IN ('a', 'b')
-- becomes:
SELECT name FROM (SELECT inline(ask_customers(`__lookup_keys`.`0`)) FROM (SELECT explode(array_distinct(arrays_zip(array(1, 2)))) AS `__lookup_keys`)) AS customers WHERE id IN (1, 2) AND zip IN ('a', 'b')

-- case: NULL is in the list, and never asked
SELECT name FROM customers WHERE id IN (1, NULL)
-- becomes:
SELECT name FROM (SELECT inline(ask_customers(`__lookup_keys`.`0`)) FROM (SELECT explode(array_distinct(arrays_zip(array(1, NULL)))) AS `__lookup_keys`)) AS customers WHERE id IN (1, NULL)

-- case: beside a join whose key is something else it is a condition
SELECT c.name FROM orders o JOIN customers c ON o.k = c.id WHERE c.zip IN ('a', 'b')
-- becomes:
SELECT c.name FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c WHERE c.zip IN ('a', 'b')

-- case: beside a join that has no key
SELECT c.name FROM orders o JOIN customers c ON o.x > c.id WHERE c.id IN (1, 2)
-- becomes:
SELECT c.name FROM orders o JOIN (SELECT inline(ask_customers(`__lookup_keys`.`0`)) FROM (SELECT explode(array_distinct(arrays_zip(array(1, 2)))) AS `__lookup_keys`)) AS c ON o.x > c.id WHERE c.id IN (1, 2)

-- case: inside a derived table that is not looked through
SELECT d.n FROM orders o JOIN (SELECT zip, count(*) AS n FROM customers WHERE id IN (1, 2) GROUP BY zip) d ON o.z = d.zip
-- becomes:
SELECT d.n FROM orders o JOIN (SELECT zip, count(*) AS n FROM (SELECT inline(ask_customers(`__lookup_keys`.`0`)) FROM (SELECT explode(array_distinct(arrays_zip(array(1, 2)))) AS `__lookup_keys`)) AS customers WHERE id IN (1, 2) GROUP BY zip) d ON o.z = d.zip

-- case: of a derived table
SELECT n FROM (SELECT id AS i, name AS n FROM customers) d WHERE i IN (1, 2)
-- becomes:
SELECT n FROM (SELECT inline(ask_customers(`__lookup_keys`.`0`)) FROM (SELECT explode(array_distinct(arrays_zip(array(1, 2)))) AS `__lookup_keys`)) AS d(`i`, `n`) WHERE i IN (1, 2)

-- case: INSERT
INSERT INTO t SELECT name FROM customers WHERE id IN (1, 2)
-- becomes:
INSERT INTO t SELECT name FROM (SELECT inline(ask_customers(`__lookup_keys`.`0`)) FROM (SELECT explode(array_distinct(arrays_zip(array(1, 2)))) AS `__lookup_keys`)) AS customers WHERE id IN (1, 2)

-- case: constants of several kinds are not asked for
SELECT name FROM customers WHERE id IN (1, 'a')
-- becomes:
SELECT name FROM scan_customers__id_name AS customers WHERE id IN (1, 'a')

-- case: NULL in a tuple equals NULL, for which nothing can be asked
SELECT rate FROM rates WHERE (currency, kind) IN (('a', NULL), ('b', 'y'))
-- refused:
line 1, column 18: rates cannot be read whole: connector 'async' answers keys only. Put it on the right side of a JOIN with an equality.
SELECT rate FROM rates WHERE (currency, kind) IN (('a', NULL), ('b', 'y'))
                 ^^^^^

-- case: NOT IN is no list
SELECT name FROM customers WHERE id NOT IN (1, 2)
-- becomes:
SELECT name FROM scan_customers__id_name AS customers WHERE id NOT IN (1, 2)

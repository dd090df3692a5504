-- case: a value in the list gets the name that it is written by
SELECT o.id, lookup_get('customers', 'name', o.k) FROM orders o
-- becomes:
SELECT o.id, coalesce(__lookup_relation_get_1.`__lookup_relation_get_1_name`) AS `lookup_get('customers', 'name', o.k)` FROM orders o LATERAL VIEW OUTER inline(ask_customers(o.k)) __lookup_relation_get_1 AS `__lookup_relation_get_1_name`

-- case: columns of one key are asked for together, and a default is for no row
SELECT lookup_get('customers', 'name', o.k) AS n, lookup_get('Customers', 'ZIP', O.K, '-') AS z FROM orders o
-- becomes:
SELECT coalesce(__lookup_relation_get_1.`__lookup_relation_get_1_name`) AS n, (CASE WHEN __lookup_relation_get_1.`__lookup_relation_get_1_id` IS NULL THEN '-' ELSE __lookup_relation_get_1.`__lookup_relation_get_1_zip` END) AS z FROM orders o LATERAL VIEW OUTER inline(ask_customers(o.k)) __lookup_relation_get_1 AS `__lookup_relation_get_1_id`, `__lookup_relation_get_1_name`, `__lookup_relation_get_1_zip`

-- case: different keys are different joins
SELECT lookup_get('customers', 'name', o.k) AS n, lookup_get('customers', 'name', o.k + 1) AS m FROM orders o
-- becomes:
SELECT coalesce(__lookup_relation_get_1.`__lookup_relation_get_1_name`) AS n, coalesce(__lookup_relation_get_2.`__lookup_relation_get_2_name`) AS m FROM orders o LATERAL VIEW OUTER inline(ask_customers(o.k)) __lookup_relation_get_1 AS `__lookup_relation_get_1_name` LATERAL VIEW OUTER inline(ask_customers((o.k + 1))) __lookup_relation_get_2 AS `__lookup_relation_get_2_name`

-- case: a star shows no column of the joins
SELECT *, count(*) OVER () AS n FROM orders o WHERE lookup_get('customers', 'country', o.k) = 'US'
-- becomes:
SELECT * EXCEPT (`__lookup_relation_get_1_id`, `__lookup_relation_get_1_country`), count(*) OVER () AS n FROM orders o LATERAL VIEW OUTER inline(ask_customers(o.k)) __lookup_relation_get_1 AS `__lookup_relation_get_1_id`, `__lookup_relation_get_1_country` WHERE coalesce(__lookup_relation_get_1.`__lookup_relation_get_1_country`) = 'US'

-- case: a value in ON is looked up before the join
SELECT o.id FROM orders o JOIN zips z ON z.zip = lookup_get('customers', 'zip', o.k)
-- becomes:
SELECT o.id FROM (SELECT struct(o.*) AS `__lookup_1`, struct(__lookup_relation_get_1.*) AS `__lookup_2` FROM orders o LATERAL VIEW OUTER inline(ask_customers(o.k)) __lookup_relation_get_1 AS `__lookup_relation_get_1_zip`) AS `__lookup_3` JOIN LATERAL (SELECT `__lookup_1`.*) AS o JOIN LATERAL (SELECT `__lookup_2`.*) AS __lookup_relation_get_1 JOIN zips z ON z.zip = coalesce(__lookup_relation_get_1.`__lookup_relation_get_1_zip`)

-- case: a value in ON of the right side is looked up there
SELECT o.id FROM orders o LEFT JOIN zips z ON z.zip = o.zip AND lookup_get('customers', 'zip', z.k) = 'x'
-- becomes:
SELECT o.id FROM orders o LEFT JOIN ((SELECT struct(z.*) AS `__lookup_1`, struct(__lookup_relation_get_1.*) AS `__lookup_2` FROM zips z LATERAL VIEW OUTER inline(ask_customers(z.k)) __lookup_relation_get_1 AS `__lookup_relation_get_1_zip`) AS `__lookup_3` JOIN LATERAL (SELECT `__lookup_1`.*) AS z JOIN LATERAL (SELECT `__lookup_2`.*) AS __lookup_relation_get_1) ON z.zip = o.zip AND coalesce(__lookup_relation_get_1.`__lookup_relation_get_1_zip`) = 'x'

-- case: a value of a key in ON serves the list, too
SELECT o.id, lookup_get('customers', 'name', o.k) AS n FROM orders o JOIN zips z ON z.zip = lookup_get('customers', 'zip', o.k)
-- becomes:
SELECT o.id, coalesce(__lookup_relation_get_1.`__lookup_relation_get_1_name`) AS n FROM (SELECT struct(o.*) AS `__lookup_1`, struct(__lookup_relation_get_1.*) AS `__lookup_2` FROM orders o LATERAL VIEW OUTER inline(ask_customers(o.k)) __lookup_relation_get_1 AS `__lookup_relation_get_1_name`, `__lookup_relation_get_1_zip`) AS `__lookup_3` JOIN LATERAL (SELECT `__lookup_1`.*) AS o JOIN LATERAL (SELECT `__lookup_2`.*) AS __lookup_relation_get_1 JOIN zips z ON z.zip = coalesce(__lookup_relation_get_1.`__lookup_relation_get_1_zip`)

-- case: a value of a key that is computed, and which an outer join may fill, is looked up again
SELECT o.id, lookup_get('customers', 'name', coalesce(o.k, 1)) AS n FROM orders o RIGHT JOIN zips z ON z.zip = lookup_get('customers', 'zip', coalesce(o.k, 1))
-- becomes:
SELECT o.id, coalesce(__lookup_relation_get_2.`__lookup_relation_get_2_name`) AS n FROM (SELECT struct(o.*) AS `__lookup_1`, struct(__lookup_relation_get_1.*) AS `__lookup_2` FROM orders o LATERAL VIEW OUTER inline(ask_customers((coalesce(o.k, 1)))) __lookup_relation_get_1 AS `__lookup_relation_get_1_zip`) AS `__lookup_3` JOIN LATERAL (SELECT `__lookup_1`.*) AS o JOIN LATERAL (SELECT `__lookup_2`.*) AS __lookup_relation_get_1 RIGHT JOIN zips z ON z.zip = coalesce(__lookup_relation_get_1.`__lookup_relation_get_1_zip`) LATERAL VIEW OUTER inline(ask_customers((coalesce(o.k, 1)))) __lookup_relation_get_2 AS `__lookup_relation_get_2_name`

-- case: a hint of the block names the table
SELECT /*+ LOOKUP('table'='customers', 'async'='false'), BROADCAST(o) */ lookup_get('customers', 'name', o.k) AS n FROM orders o
-- becomes:
SELECT /*+ BROADCAST(o) */ coalesce(__lookup_relation_get_1.`__lookup_relation_get_1_name`) AS n FROM orders o LATERAL VIEW OUTER inline(ask_customers(o.k)) __lookup_relation_get_1 AS `__lookup_relation_get_1_name`

-- case: a hint in Spark's words names the table
SELECT /*+ EXTERNAL_LOOKUP(customers) */ lookup_get('customers', 'name', o.k) AS n FROM orders o
-- becomes:
SELECT  coalesce(__lookup_relation_get_1.`__lookup_relation_get_1_name`) AS n FROM orders o LATERAL VIEW OUTER inline(ask_customers(o.k)) __lookup_relation_get_1 AS `__lookup_relation_get_1_name`

-- case: a value of a group is checked by Spark to be of a key of the group
SELECT o.k, lookup_get('customers', 'name', o.k, 'none') AS n, max(lookup_get('customers', 'zip', o.k)) AS z FROM orders o GROUP BY o.k
-- becomes:
SELECT o.k, (CASE WHEN (o.k) IS NULL OR any_value(__lookup_relation_get_1.`__lookup_relation_get_1_id`) IS NULL THEN 'none' ELSE any_value(__lookup_relation_get_1.`__lookup_relation_get_1_name`) END) AS n, max(coalesce(__lookup_relation_get_1.`__lookup_relation_get_1_zip`)) AS z FROM orders o LATERAL VIEW OUTER inline(ask_customers(o.k)) __lookup_relation_get_1 AS `__lookup_relation_get_1_id`, `__lookup_relation_get_1_name`, `__lookup_relation_get_1_zip` GROUP BY o.k

-- case: a value of a group, whose key is another one
SELECT o.k, lookup_get('customers', 'name', o.k + lookup_get('customers', 'id', o.k, lookup_get('customers', 'id', 7))) AS n FROM orders o GROUP BY o.k
-- becomes:
SELECT o.k, (CASE WHEN (o.k + (CASE WHEN (o.k) IS NULL OR any_value(__lookup_relation_get_2.`__lookup_relation_get_2_id`) IS NULL THEN (CASE WHEN (7) IS NULL OR any_value(__lookup_relation_get_1.`__lookup_relation_get_1_id`) IS NULL THEN NULL ELSE any_value(__lookup_relation_get_1.`__lookup_relation_get_1_id`) END) ELSE any_value(__lookup_relation_get_2.`__lookup_relation_get_2_id`) END)) IS NULL OR any_value(__lookup_relation_get_3.`__lookup_relation_get_3_id`) IS NULL THEN NULL ELSE any_value(__lookup_relation_get_3.`__lookup_relation_get_3_name`) END) AS n FROM orders o LATERAL VIEW OUTER inline(ask_customers((7))) __lookup_relation_get_1 AS `__lookup_relation_get_1_id` LATERAL VIEW OUTER inline(ask_customers(o.k)) __lookup_relation_get_2 AS `__lookup_relation_get_2_id` LATERAL VIEW OUTER inline(ask_customers((o.k + (CASE WHEN __lookup_relation_get_2.`__lookup_relation_get_2_id` IS NULL THEN coalesce(__lookup_relation_get_1.`__lookup_relation_get_1_id`) ELSE __lookup_relation_get_2.`__lookup_relation_get_2_id` END)))) __lookup_relation_get_3 AS `__lookup_relation_get_3_id`, `__lookup_relation_get_3_name` GROUP BY o.k

-- case: a value in a subquery joins the query that has its key
SELECT o.id FROM orders o WHERE EXISTS (SELECT 1 FROM zips z WHERE z.zip = lookup_get('customers', 'zip', o.k))
-- becomes:
SELECT o.id FROM orders o LATERAL VIEW OUTER inline(ask_customers(o.k)) __lookup_relation_get_1 AS `__lookup_relation_get_1_zip` WHERE EXISTS (SELECT 1 FROM zips z WHERE z.zip = coalesce(__lookup_relation_get_1.`__lookup_relation_get_1_zip`))

-- case: a value of a value
SELECT lookup_get('customers', 'name', lookup_get('texts', 'id', o.k)) AS n FROM orders o
-- becomes:
SELECT coalesce(__lookup_relation_get_2.`__lookup_relation_get_2_name`) AS n FROM orders o LATERAL VIEW OUTER inline(ask_texts(o.k)) __lookup_relation_get_1 AS `__lookup_relation_get_1_id` LATERAL VIEW OUTER inline(ask_customers((coalesce(__lookup_relation_get_1.`__lookup_relation_get_1_id`)))) __lookup_relation_get_2 AS `__lookup_relation_get_2_name`

-- case: a value without a FROM
SELECT lookup_get('customers', 'name', 5)
-- becomes:
SELECT coalesce(__lookup_relation_get_1.`__lookup_relation_get_1_name`) AS `lookup_get('customers', 'name', 5)` FROM (SELECT 1 AS __lookup_relation_get_0) LATERAL VIEW OUTER inline(ask_customers((5))) __lookup_relation_get_1 AS `__lookup_relation_get_1_name`

-- case: a key of both items of a list
SELECT lookup_get('customers', 'name', o.k + z.k) AS n FROM orders o, zips z
-- becomes:
SELECT coalesce(__lookup_relation_get_1.`__lookup_relation_get_1_name`) AS n FROM orders o CROSS JOIN zips z LATERAL VIEW OUTER inline(ask_customers((o.k + z.k))) __lookup_relation_get_1 AS `__lookup_relation_get_1_name`

-- case: a function of a schema is not ours
SELECT db.lookup_get('customers', 'name', o.k), lookup_get FROM orders o JOIN customers c ON o.k = c.id
-- becomes:
SELECT db.lookup_get('customers', 'name', o.k), lookup_get FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c

-- case: a star shows no column of a semi join either, so none is left out of it
SELECT * FROM orders o LEFT SEMI JOIN zips z ON z.zip = o.zip AND lookup_get('customers', 'zip', z.k) = 'x'
-- becomes:
SELECT * FROM orders o LEFT SEMI JOIN ((SELECT struct(z.*) AS `__lookup_1`, struct(__lookup_relation_get_1.*) AS `__lookup_2` FROM zips z LATERAL VIEW OUTER inline(ask_customers(z.k)) __lookup_relation_get_1 AS `__lookup_relation_get_1_id`, `__lookup_relation_get_1_zip`) AS `__lookup_3` JOIN LATERAL (SELECT `__lookup_1`.*) AS z JOIN LATERAL (SELECT `__lookup_2`.*) AS __lookup_relation_get_1) ON z.zip = o.zip AND coalesce(__lookup_relation_get_1.`__lookup_relation_get_1_zip`) = 'x'

-- case: too few arguments
SELECT lookup_get('customers', o.k) FROM orders o
-- refused:
line 1, column 8: lookup_get: It takes 3 or 4 arguments, not 2. Write lookup_get('table', 'column', key [, default]).
SELECT lookup_get('customers', o.k) FROM orders o
       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^

-- case: an unknown table and an unknown column
SELECT lookup_get('custmers', 'name', o.k),
       lookup_get('customers', 'nam', o.k) FROM orders o
-- refused:
line 1, column 19: lookup_get: There is no lookup table 'custmers'.
SELECT lookup_get('custmers', 'name', o.k),
                  ^^^^^^^^^^
line 2, column 32: lookup_get: customers has no column 'nam'. Did you mean 'name'?
       lookup_get('customers', 'nam', o.k) FROM orders o
                               ^^^^^

-- case: a table that is not known before
SELECT lookup_get(o.t, 'name', o.k) FROM orders o
-- refused:
line 1, column 19: lookup_get: The table must be known before the query runs. Write its name in quotes: lookup_get('table', 'column', key [, default]).
SELECT lookup_get(o.t, 'name', o.k) FROM orders o
                  ^^^

-- case: a table without a key
SELECT lookup_get('rates', 'rate', o.k) FROM orders o
-- refused:
line 1, column 19: lookup_get: The lookup table rates declares no key, so a key may have several rows. Declare PRIMARY KEY (column) NOT ENFORCED in its CREATE TABLE.
SELECT lookup_get('rates', 'rate', o.k) FROM orders o
                  ^^^^^^^

-- case: a key of too many values
SELECT lookup_get('customers', 'name', struct(o.k, o.i)) FROM orders o
-- refused:
line 1, column 40: lookup_get: The key of customers has 1 column (id), and 2 values are given. Write the key as id.
SELECT lookup_get('customers', 'name', struct(o.k, o.i)) FROM orders o
                                       ^^^^^^^^^^^^^^^^

-- case: a part of a key with a name
SELECT lookup_get('customers', 'name', struct(o.k AS id)) FROM orders o
-- refused:
line 1, column 47: lookup_get: This part of the key cannot be read. Write one value, without a name.
SELECT lookup_get('customers', 'name', struct(o.k AS id)) FROM orders o
                                              ^^^^^^^^^

-- case: a table that a CTE hides
WITH customers AS (SELECT 1 AS x) SELECT lookup_get('customers', 'name', o.k) FROM orders o
-- refused:
line 1, column 53: lookup_get: A query of WITH is called customers, too, and hides the lookup table. Give that query another name.
WITH customers AS (SELECT 1 AS x) SELECT lookup_get('customers', 'name', o.k) FROM orders o
                                                    ^^^^^^^^^^^

-- case: a variable of a lambda
SELECT transform(o.a, (x, i) -> lookup_get('customers', 'name', x)) FROM orders o
-- refused:
line 1, column 33: lookup_get cannot be here: its key is a variable of a lambda, which no join can name. Make rows of the array first: FROM ... LATERAL VIEW explode(...).
SELECT transform(o.a, (x, i) -> lookup_get('customers', 'name', x)) FROM orders o
                                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

-- case: an aggregate as the key
SELECT lookup_get('customers', 'name', max(o.k)) FROM orders o
-- refused:
line 1, column 8: lookup_get cannot be here: its key is an aggregate or a window. Compute the key in a derived table: FROM (SELECT ..., key AS k FROM ...).
SELECT lookup_get('customers', 'name', max(o.k)) FROM orders o
       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

-- case: a key of both sides of a join
SELECT 1 FROM orders o JOIN zips z ON lookup_get('customers', 'name', o.k + z.k) = 'x'
-- refused:
line 1, column 39: lookup_get cannot be here: its key has columns of both sides of the join. Put the condition into WHERE, or compute the value in a derived table on one side.
SELECT 1 FROM orders o JOIN zips z ON lookup_get('customers', 'name', o.k + z.k) = 'x'
                                      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

-- case: a key of two queries
SELECT 1 FROM orders o WHERE EXISTS (SELECT 1 FROM zips z WHERE lookup_get('customers', 'name', o.k + z.k) = 'x')
-- refused:
line 1, column 65: lookup_get cannot be here: its key has columns of two queries. Use columns of one query as its key.
SELECT 1 FROM orders o WHERE EXISTS (SELECT 1 FROM zips z WHERE lookup_get('customers', 'name', o.k + z.k) = 'x')
                                                                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

-- case: a key of a LATERAL VIEW
SELECT lookup_get('customers', 'name', x) FROM orders o LATERAL VIEW explode(o.a) v AS x
-- refused:
line 1, column 8: lookup_get cannot be here: its key may be a column of a LATERAL VIEW, behind which nothing can be joined. Qualify the key. Compute the key in a derived table: FROM (SELECT ..., key AS k FROM ...).
SELECT lookup_get('customers', 'name', x) FROM orders o LATERAL VIEW explode(o.a) v AS x
       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

-- case: a key of relations with commas and joins between them
SELECT lookup_get('customers', 'name', o.k + z.k) FROM orders o, zips z JOIN e ON e.z = z.z
-- refused:
line 1, column 8: lookup_get cannot be here: its key has columns of relations with commas between them. Write CROSS JOIN in place of the comma.
SELECT lookup_get('customers', 'name', o.k + z.k) FROM orders o, zips z JOIN e ON e.z = z.z
       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

-- case: a computed key of CUBE
SELECT lookup_get('customers', 'name', o.k + 1) FROM orders o GROUP BY CUBE (o.k)
-- refused:
line 1, column 8: lookup_get cannot be here: its key is computed from columns that CUBE, ROLLUP or GROUPING SETS leave out. Compute the key in a derived table: FROM (SELECT ..., key AS k FROM ...).
SELECT lookup_get('customers', 'name', o.k + 1) FROM orders o GROUP BY CUBE (o.k)
       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

-- case: a value that orders a UNION
SELECT k FROM orders UNION SELECT k FROM zips ORDER BY lookup_get('customers', 'name', k)
-- refused:
line 1, column 56: lookup_get cannot be here: it orders the rows of a set operation. Select the value in each branch, and order by its name.
SELECT k FROM orders UNION SELECT k FROM zips ORDER BY lookup_get('customers', 'name', k)
                                                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

-- case: a value in no query
SET VAR x = lookup_get('customers', 'name', 1)
-- refused:
line 1, column 13: lookup_get cannot be here: it stands in no query whose FROM could hold the lookup. Use it in the query that gives the rows.
SET VAR x = lookup_get('customers', 'name', 1)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

-- case: a value in parentheses with an alias
SELECT p.k FROM (orders o JOIN zips z ON z.zip = lookup_get('customers', 'zip', o.k)) p
-- refused:
line 1, column 50: lookup_get cannot be here: the parentheses around this join have an alias. Write the join as a derived table: (SELECT ... FROM ...).
SELECT p.k FROM (orders o JOIN zips z ON z.zip = lookup_get('customers', 'zip', o.k)) p
                                                 ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

-- case: a value in a pipe without a list behind it
FROM orders o |> WHERE lookup_get('customers', 'zip', o.k) = 'x'
-- refused:
line 1, column 24: lookup_get cannot be here: no |> SELECT lists the columns behind it. End with |> SELECT.
FROM orders o |> WHERE lookup_get('customers', 'zip', o.k) = 'x'
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

-- case: a value in a pipe behind a list
FROM orders o |> SELECT o.k |> WHERE lookup_get('customers', 'zip', k) = 'x' |> SELECT k
-- refused:
line 1, column 38: lookup_get cannot be here: a SELECT or AGGREGATE comes before it. Compute the key in a derived table: FROM (SELECT ..., key AS k FROM ...).
FROM orders o |> SELECT o.k |> WHERE lookup_get('customers', 'zip', k) = 'x' |> SELECT k
                                     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

-- case: a hint that names no table of a value
SELECT /*+ LOOKUP('table'='texts') */ lookup_get('customers', 'name', o.k) AS n FROM orders o
-- refused:
line 1, column 27: LOOKUP names 'texts', but no lookup join in this query block has that alias. Known: customers.
SELECT /*+ LOOKUP('table'='texts') */ lookup_get('customers', 'name', o.k) AS n FROM orders o
                          ^^^^^^^

-- case: a join that cannot be asked shows the call
SELECT /*+ LOOKUP('table'='customers') */ lookup_get('customers', 'name', rand()) AS n FROM orders o
-- becomes:
SELECT  coalesce(__lookup_relation_get_1.`__lookup_relation_get_1_name`) AS n FROM orders o LATERAL VIEW OUTER inline(ask_customers((rand()))) __lookup_relation_get_1 AS `__lookup_relation_get_1_name`

-- case: a query with neither columns nor FROM
SELECT HAVING lookup_get('customers', 'name', 5)
-- refused:
line 1, column 15: lookup_get cannot be here: this query has neither columns nor FROM. Write SELECT ... FROM.
SELECT HAVING lookup_get('customers', 'name', 5)
              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

-- case: parentheses that do not match are left to Spark's parser
SELECT lookup_get('customers', 'name', o.k)) AS name FROM orders o GROUP BY ALL
-- becomes:
SELECT lookup_get('customers', 'name', o.k)) AS name FROM orders o GROUP BY ALL

-- case: a step of a pipe that cannot be read
FROM orders o |> SELECT o. |> WHERE lookup_get('customers', 'zip', k) = 'x' |> SELECT k
-- refused:
line 1, column 37: lookup_get cannot be here: its step of the pipe cannot be read. Look at the end of the step before.
FROM orders o |> SELECT o. |> WHERE lookup_get('customers', 'zip', k) = 'x' |> SELECT k
                                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

-- case: in the source of MERGE
MERGE INTO t USING (SELECT o.id, lookup_get('customers', 'name', o.k) AS name FROM orders o) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *
-- becomes:
MERGE INTO t USING (SELECT o.id, coalesce(__lookup_relation_get_1.`__lookup_relation_get_1_name`) AS name FROM orders o LATERAL VIEW OUTER inline(ask_customers(o.k)) __lookup_relation_get_1 AS `__lookup_relation_get_1_name`) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *

-- case: in an action of MERGE
MERGE INTO t USING orders o ON t.id = o.id WHEN MATCHED THEN UPDATE SET name = lookup_get('customers', 'name', o.k), zip = (SELECT lookup_get('customers', 'zip', o.k, o.z))
-- becomes:
MERGE INTO t USING (SELECT o.*, coalesce(__lookup_relation_get_1.`__lookup_relation_get_1_name`) AS `__lookup_value_1`, (CASE WHEN __lookup_relation_get_1.`__lookup_relation_get_1_id` IS NULL THEN o.z ELSE __lookup_relation_get_1.`__lookup_relation_get_1_zip` END) AS `__lookup_value_2` FROM orders o LATERAL VIEW OUTER inline(ask_customers(o.k)) __lookup_relation_get_1 AS `__lookup_relation_get_1_id`, `__lookup_relation_get_1_name`, `__lookup_relation_get_1_zip`) AS o ON t.id = o.id WHEN MATCHED THEN UPDATE SET name = o.`__lookup_value_1`, zip = o.`__lookup_value_2`

-- case: in the condition of MERGE
MERGE INTO t USING db.orders ON t.name = lookup_get('customers', 'name', orders.k) WHEN MATCHED THEN DELETE
-- becomes:
MERGE INTO t USING (SELECT orders.*, coalesce(__lookup_relation_get_1.`__lookup_relation_get_1_name`) AS `__lookup_value_1` FROM db.orders LATERAL VIEW OUTER inline(ask_customers(orders.k)) __lookup_relation_get_1 AS `__lookup_relation_get_1_name`) AS orders ON t.name = orders.`__lookup_value_1` WHEN MATCHED THEN DELETE

-- case: in a condition and in values of MERGE, whose source is a query
MERGE INTO t AS t USING (SELECT id, k FROM orders) AS `s s` (i, j) ON t.id = `s s`.i WHEN MATCHED AND lookup_get('customers', 'name', `s s`.j) = 'x' THEN DELETE WHEN NOT MATCHED THEN INSERT (id, name) VALUES (`s s`.i, upper(lookup_get('customers', 'name', lookup_get('customers', 'id', `S S`.j))))
-- becomes:
MERGE INTO t AS t USING (SELECT `s s`.*, coalesce(__lookup_relation_get_1.`__lookup_relation_get_1_name`) AS `__lookup_value_1`, coalesce(__lookup_relation_get_2.`__lookup_relation_get_2_name`) AS `__lookup_value_2` FROM (SELECT id, k FROM orders) AS `s s` (i, j) LATERAL VIEW OUTER inline(ask_customers(`s s`.j)) __lookup_relation_get_1 AS `__lookup_relation_get_1_id`, `__lookup_relation_get_1_name` LATERAL VIEW OUTER inline(ask_customers((coalesce(__lookup_relation_get_1.`__lookup_relation_get_1_id`)))) __lookup_relation_get_2 AS `__lookup_relation_get_2_name`) AS `s s` ON t.id = `s s`.i WHEN MATCHED AND `s s`.`__lookup_value_1` = 'x' THEN DELETE WHEN NOT MATCHED THEN INSERT (id, name) VALUES (`s s`.i, upper(`s s`.`__lookup_value_2`))

-- case: in MERGE, with a key of the target
MERGE INTO t USING orders o ON t.id = o.id WHEN MATCHED THEN UPDATE SET name = lookup_get('customers', 'name', t.k)
-- refused:
line 1, column 80: lookup_get cannot be here: its key or default has columns of the target. Select the value in USING: USING (SELECT ..., lookup_get(...) AS value FROM ...).
MERGE INTO t USING orders o ON t.id = o.id WHEN MATCHED THEN UPDATE SET name = lookup_get('customers', 'name', t.k)
                                                                               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

-- case: in MERGE, with a key that may be of the target
MERGE INTO t USING orders o ON t.id = o.id WHEN MATCHED THEN UPDATE SET name = lookup_get('customers', 'name', k)
-- refused:
line 1, column 80: lookup_get cannot be here: its key or default may have columns of the target. Write o and a dot before the columns of the source.
MERGE INTO t USING orders o ON t.id = o.id WHEN MATCHED THEN UPDATE SET name = lookup_get('customers', 'name', k)
                                                                               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

-- case: in MERGE, whose source has no name
MERGE INTO t USING (SELECT * FROM orders) ON t.id = id WHEN MATCHED THEN UPDATE SET name = lookup_get('customers', 'name', k)
-- refused:
line 1, column 92: lookup_get cannot be here: the source of the MERGE has no name. Give it one: USING ... AS s.
MERGE INTO t USING (SELECT * FROM orders) ON t.id = id WHEN MATCHED THEN UPDATE SET name = lookup_get('customers', 'name', k)
                                                                                           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

-- case: in MERGE, with a query as its key
MERGE INTO t USING orders o ON t.id = o.id WHEN MATCHED THEN UPDATE SET name = lookup_get('customers', 'name', (SELECT max(k) FROM x))
-- refused:
line 1, column 113: lookup_get: This part of the key cannot be read. Write one value, without a name.
MERGE INTO t USING orders o ON t.id = o.id WHEN MATCHED THEN UPDATE SET name = lookup_get('customers', 'name', (SELECT max(k) FROM x))
                                                                                                                ^^^^^^^^^^^^^^^^^^^^

-- case: in MERGE, which takes all columns
MERGE INTO t USING orders o ON t.id = o.id WHEN MATCHED THEN UPDATE SET name = lookup_get('customers', 'name', o.k) WHEN NOT MATCHED THEN INSERT *
-- refused:
line 1, column 80: lookup_get cannot be here: the MERGE takes all columns of the source. List the columns in place of *. Select the value in USING: USING (SELECT ..., lookup_get(...) AS value FROM ...).
MERGE INTO t USING orders o ON t.id = o.id WHEN MATCHED THEN UPDATE SET name = lookup_get('customers', 'name', o.k) WHEN NOT MATCHED THEN INSERT *
                                                                               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

-- case: in MERGE, of a column that is not there
MERGE INTO t USING orders o ON t.id = o.id WHEN MATCHED THEN UPDATE SET name = lookup_get('customers', 'nam', o.k)
-- refused:
line 1, column 104: lookup_get: customers has no column 'nam'. Did you mean 'name'?
MERGE INTO t USING orders o ON t.id = o.id WHEN MATCHED THEN UPDATE SET name = lookup_get('customers', 'nam', o.k)
                                                                                                       ^^^^^

-- case: in each MERGE of a script
BEGIN IF 1 = 1 THEN MERGE INTO t USING orders o ON t.id = o.id WHEN MATCHED THEN UPDATE SET name = lookup_get('customers', 'name', o.k); END IF; MERGE INTO u USING o2 p ON u.id = p.id WHEN MATCHED THEN UPDATE SET zip = lookup_get('customers', 'zip', p.k); INSERT INTO v SELECT 1 AS a; END
-- becomes:
BEGIN IF 1 = 1 THEN MERGE INTO t USING (SELECT o.*, coalesce(__lookup_relation_get_1.`__lookup_relation_get_1_name`) AS `__lookup_value_1` FROM orders o LATERAL VIEW OUTER inline(ask_customers(o.k)) __lookup_relation_get_1 AS `__lookup_relation_get_1_name`) AS o ON t.id = o.id WHEN MATCHED THEN UPDATE SET name = o.`__lookup_value_1`; END IF; MERGE INTO u USING (SELECT p.*, coalesce(__lookup_relation_get_2.`__lookup_relation_get_2_zip`) AS `__lookup_value_2` FROM o2 p LATERAL VIEW OUTER inline(ask_customers(p.k)) __lookup_relation_get_2 AS `__lookup_relation_get_2_zip`) AS p ON u.id = p.id WHEN MATCHED THEN UPDATE SET zip = p.`__lookup_value_2`; INSERT INTO v SELECT 1 AS a; END

-- case: in MERGE of a script, with a key of the target
BEGIN SELECT 1 AS a; MERGE INTO t USING orders o ON t.id = o.id WHEN MATCHED THEN UPDATE SET name = lookup_get('customers', 'name', t.k); END
-- refused:
line 1, column 101: lookup_get cannot be here: its key or default has columns of the target. Select the value in USING: USING (SELECT ..., lookup_get(...) AS value FROM ...).
BEGIN SELECT 1 AS a; MERGE INTO t USING orders o ON t.id = o.id WHEN MATCHED THEN UPDATE SET name = lookup_get('customers', 'name', t.k); END
                                                                                                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

-- case: in a query without FROM in MERGE of a script
BEGIN MERGE INTO t USING orders o ON t.id = o.id WHEN MATCHED THEN UPDATE SET name = (SELECT max(lookup_get('customers', 'name', k))); END
-- refused:
line 1, column 98: lookup_get cannot be here: it stands in no query whose FROM could hold the lookup. Select the value in USING: USING (SELECT ..., lookup_get(...) AS value FROM ...).
BEGIN MERGE INTO t USING orders o ON t.id = o.id WHEN MATCHED THEN UPDATE SET name = (SELECT max(lookup_get('customers', 'name', k))); END
                                                                                                 ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

-- case: in UPDATE of a script
BEGIN UPDATE t SET name = lookup_get('customers', 'name', k) WHERE id > 1; END
-- refused:
line 1, column 27: lookup_get cannot be here: it stands in no query whose FROM could hold the lookup. Write a MERGE INTO the same table. Select the value in USING: USING (SELECT ..., lookup_get(...) AS value FROM ...).
BEGIN UPDATE t SET name = lookup_get('customers', 'name', k) WHERE id > 1; END
                          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

-- case: in a query without FROM in UPDATE
UPDATE t SET name = (SELECT lookup_get('customers', 'name', k)) WHERE id > 1
-- refused:
line 1, column 29: lookup_get cannot be here: it stands in no query whose FROM could hold the lookup. Write a MERGE INTO the same table. Select the value in USING: USING (SELECT ..., lookup_get(...) AS value FROM ...).
UPDATE t SET name = (SELECT lookup_get('customers', 'name', k)) WHERE id > 1
                            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

-- case: of a constant in UPDATE
UPDATE t SET name = (SELECT lookup_get('customers', 'name', 1)) WHERE id > 1
-- becomes:
UPDATE t SET name = (SELECT coalesce(__lookup_relation_get_1.`__lookup_relation_get_1_name`) AS `lookup_get('customers', 'name', 1)` FROM (SELECT 1 AS __lookup_relation_get_0) LATERAL VIEW OUTER inline(ask_customers((1))) __lookup_relation_get_1 AS `__lookup_relation_get_1_name`) WHERE id > 1

-- case: in UPDATE
UPDATE t SET name = lookup_get('customers', 'name', k) WHERE id > 1
-- refused:
line 1, column 21: lookup_get cannot be here: it stands in no query whose FROM could hold the lookup. Write a MERGE INTO the same table. Select the value in USING: USING (SELECT ..., lookup_get(...) AS value FROM ...).
UPDATE t SET name = lookup_get('customers', 'name', k) WHERE id > 1
                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

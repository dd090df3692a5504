-- case: a relation follows
SELECT 1 FROM orders o JOIN customers c ON o.k = c.id JOIN zips z ON z.zip = c.zip
-- becomes:
SELECT 1 FROM (SELECT struct(o.*) AS `__lookup_1`, struct(c.*) AS `__lookup_2` FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c) AS `__lookup_3` JOIN LATERAL (SELECT `__lookup_1`.*) AS o JOIN LATERAL (SELECT `__lookup_2`.*) AS c JOIN zips z ON z.zip = c.zip

-- case: a comma follows
SELECT 1 FROM orders o JOIN customers c ON o.k = c.id, zips z
-- becomes:
SELECT 1 FROM (SELECT struct(o.*) AS `__lookup_1`, struct(c.*) AS `__lookup_2` FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c) AS `__lookup_3` JOIN LATERAL (SELECT `__lookup_1`.*) AS o JOIN LATERAL (SELECT `__lookup_2`.*) AS c, zips z

-- case: comma join
SELECT 1 FROM orders o, customers c WHERE o.k = c.id
-- becomes:
SELECT 1 FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c WHERE o.k = c.id

-- case: right join
SELECT 1 FROM orders o RIGHT JOIN customers c ON o.k = c.id
-- becomes:
SELECT 1 FROM orders o RIGHT JOIN scan_customers__id AS c ON o.k = c.id

-- case: right join, where a hint wants it asked
SELECT /*+ LOOKUP('table'='c') */ 1 FROM orders o RIGHT JOIN customers c ON o.k = c.id
-- refused:
line 1, column 51: The lookup join with c cannot run: a RIGHT JOIN needs every row of the lookup table; write LEFT JOIN with the sides swapped.
SELECT /*+ LOOKUP('table'='c') */ 1 FROM orders o RIGHT JOIN customers c ON o.k = c.id
                                                  ^^^^^^^^^^^^^^^^^^^^^^

-- case: full join
SELECT 1 FROM orders o FULL OUTER JOIN customers c ON o.k = c.id
-- becomes:
SELECT 1 FROM orders o FULL OUTER JOIN scan_customers__id AS c ON o.k = c.id

-- case: full join, where a hint wants it asked
SELECT /*+ LOOKUP('table'='c') */ 1 FROM orders o FULL OUTER JOIN customers c ON o.k = c.id
-- refused:
line 1, column 51: The lookup join with c cannot run: a FULL JOIN needs every row of the lookup table; write LEFT JOIN.
SELECT /*+ LOOKUP('table'='c') */ 1 FROM orders o FULL OUTER JOIN customers c ON o.k = c.id
                                                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^

-- case: cross join
SELECT 1 FROM orders o CROSS JOIN customers c
-- becomes:
SELECT 1 FROM orders o CROSS JOIN scan_customers__id AS c

-- case: cross join, where a hint wants it asked
SELECT /*+ LOOKUP('table'='c') */ 1 FROM orders o CROSS JOIN customers c
-- refused:
line 1, column 51: The lookup join with c cannot run: a CROSS JOIN gives no key to ask for; write JOIN ... ON with an equality.
SELECT /*+ LOOKUP('table'='c') */ 1 FROM orders o CROSS JOIN customers c
                                                  ^^^^^^^^^^^^^^^^^^^^^^

-- case: no condition
SELECT 1 FROM orders o JOIN customers c
-- becomes:
SELECT 1 FROM orders o JOIN scan_customers__id AS c

-- case: no condition, where a hint wants it asked
SELECT /*+ LOOKUP('table'='c') */ 1 FROM orders o JOIN customers c
-- refused:
line 1, column 51: The lookup join with c cannot run: it has no ON condition, so nothing says which rows to ask for.
SELECT /*+ LOOKUP('table'='c') */ 1 FROM orders o JOIN customers c
                                                  ^^^^^^^^^^^^^^^^

-- case: natural join
SELECT 1 FROM orders o NATURAL JOIN customers c
-- becomes:
SELECT 1 FROM orders o NATURAL JOIN scan_customers__id_name_country_zip_address AS c

-- case: natural join, where a hint wants it asked
SELECT /*+ LOOKUP('table'='c') */ 1 FROM orders o NATURAL JOIN customers c
-- refused:
line 1, column 51: The lookup join with c cannot run: NATURAL JOIN finds no column of the same name; write JOIN ... ON with the equality.
SELECT /*+ LOOKUP('table'='c') */ 1 FROM orders o NATURAL JOIN customers c
                                                  ^^^^^^^^^^^^^^^^^^^^^^^^

-- case: using
SELECT 1 FROM orders o JOIN customers c USING (id)
-- becomes:
SELECT 1 FROM orders o LATERAL VIEW inline(ask_customers(id)) c AS `__lookup_using_id`

-- case: using, in a group of relations without a lookup, beside a table that is read
SELECT * FROM o JOIN q USING (k), p, networks m, networks n WHERE o.v = m.high AND p.k = n.low
-- becomes:
SELECT * FROM o JOIN q USING (k), p, scan_networks__low_high_name AS m, scan_networks__low_high_name AS n WHERE o.v = m.high AND p.k = n.low

-- case: left semi
SELECT 1 FROM orders o LEFT SEMI JOIN customers c ON o.k = c.id
-- becomes:
SELECT 1 FROM orders o LATERAL VIEW inline(slice(array(struct()), 1, int(size(ask_customers(o.k)) > 0))) `__lookup_semi_1`

-- case: left anti
SELECT 1 FROM orders o LEFT ANTI JOIN customers c ON o.k = c.id
-- becomes:
SELECT 1 FROM orders o LATERAL VIEW inline(slice(array(struct()), 1, int(size(ask_customers(o.k)) = 0))) `__lookup_semi_1`

-- case: in parentheses
SELECT 1 FROM (orders o JOIN customers c ON o.k = c.id) JOIN zips z ON z.zip = c.zip
-- becomes:
SELECT 1 FROM ((SELECT struct(o.*) AS `__lookup_1`, struct(c.*) AS `__lookup_2` FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c) AS `__lookup_3` JOIN LATERAL (SELECT `__lookup_1`.*) AS o JOIN LATERAL (SELECT `__lookup_2`.*) AS c) JOIN zips z ON z.zip = c.zip

-- case: in parentheses by itself
SELECT 1 FROM orders o JOIN (customers c) ON o.k = c.id
-- becomes:
SELECT 1 FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c

-- case: a sample of the lookup table
SELECT 1 FROM orders o JOIN customers TABLESAMPLE (2 ROWS) c ON o.k = c.id
-- becomes:
SELECT 1 FROM orders o JOIN scan_customers__id TABLESAMPLE (2 ROWS) AS c ON o.k = c.id

-- case: a sample of the lookup table, where a hint wants it asked
SELECT /*+ LOOKUP('table'='c') */ 1 FROM orders o JOIN customers TABLESAMPLE (2 ROWS) c ON o.k = c.id
-- refused:
line 1, column 56: Only AS and FOR SYSTEM_TIME AS OF can stand beside the lookup table customers: it is asked by key, not read.
SELECT /*+ LOOKUP('table'='c') */ 1 FROM orders o JOIN customers TABLESAMPLE (2 ROWS) c ON o.k = c.id
                                                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

-- case: a sample of the lookup table, read whole
SELECT count(*) FROM customers TABLESAMPLE (2 ROWS)
-- becomes:
SELECT count(*) FROM scan_customers__id TABLESAMPLE (2 ROWS) AS customers

-- case: unpivot over the join
SELECT * FROM orders o JOIN customers c ON o.k = c.id UNPIVOT (v FOR n IN (zip, country))
-- becomes:
SELECT * FROM orders o JOIN scan_customers__id_name_country_zip_address AS c ON o.k = c.id UNPIVOT (v FOR n IN (zip, country))

-- case: unpivot over the join, where a hint wants it asked
SELECT /*+ LOOKUP('table'='c') */ * FROM orders o JOIN customers c ON o.k = c.id UNPIVOT (v FOR n IN (zip, country))
-- refused:
line 1, column 51: The lookup join with c cannot run: a PIVOT or UNPIVOT follows it; put the join into a subquery.
SELECT /*+ LOOKUP('table'='c') */ * FROM orders o JOIN customers c ON o.k = c.id UNPIVOT (v FOR n IN (zip, country))
                                                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

-- case: a join after a pivot
SELECT * FROM orders o JOIN customers c ON o.k = c.id PIVOT (count(1) FOR zip IN ('a', 'b')) JOIN zips z ON true
-- becomes:
SELECT * FROM orders o JOIN scan_customers__id_name_country_zip_address AS c ON o.k = c.id PIVOT (count(1) FOR zip IN ('a', 'b')) JOIN zips z ON true

-- case: a join after a pivot, where a hint wants it asked
SELECT /*+ LOOKUP('table'='c') */ * FROM orders o JOIN customers c ON o.k = c.id PIVOT (count(1) FOR zip IN ('a', 'b')) JOIN zips z ON true
-- refused:
line 1, column 51: The lookup join with c cannot run: a PIVOT or UNPIVOT follows it; put the join into a subquery.
SELECT /*+ LOOKUP('table'='c') */ * FROM orders o JOIN customers c ON o.k = c.id PIVOT (count(1) FOR zip IN ('a', 'b')) JOIN zips z ON true
                                                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

-- case: an ON without a condition
SELECT 1 FROM orders o JOIN customers c ON
-- becomes:
SELECT 1 FROM orders o JOIN scan_customers__id AS c ON

-- case: an ON without a condition, where a hint wants it asked
SELECT /*+ LOOKUP('table'='c') */ 1 FROM orders o JOIN customers c ON
-- refused:
line 1, column 51: The lookup join with c cannot run: it has no ON condition, so nothing says which rows to ask for.
SELECT /*+ LOOKUP('table'='c') */ 1 FROM orders o JOIN customers c ON
                                                  ^^^^^^^^^^^^^^^^

-- case: words that make no join
SELECT 1 FROM orders o LEFT INNER JOIN customers c ON o.k = c.id
-- refused:
line 1, column 24: The lookup join with c cannot run: LEFT INNER JOIN is not a join type.
SELECT 1 FROM orders o LEFT INNER JOIN customers c ON o.k = c.id
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^

-- case: too few column aliases
SELECT 1 FROM orders o JOIN customers c(a, b) ON o.k = c.a
-- refused:
line 1, column 29: The lookup join with c cannot run: it gives 2 names to 5 columns.
SELECT 1 FROM orders o JOIN customers c(a, b) ON o.k = c.a
                            ^^^^^^^^^^^^^^^^^

-- case: a star behind the lookup table
SELECT 1 FROM orders o JOIN customers *(a, b, d, e, f) ON o.k = a
-- becomes:
SELECT 1 FROM orders o JOIN scan_customers__id AS customers *(a, b, d, e, f) ON o.k = a

-- case: a star behind the lookup table, where a hint wants it asked
SELECT /*+ LOOKUP('table'='customers') */ 1 FROM orders o JOIN customers *(a, b, d, e, f) ON o.k = a
-- refused:
line 1, column 59: The lookup join with customers cannot run: it has no ON condition, so nothing says which rows to ask for.
SELECT /*+ LOOKUP('table'='customers') */ 1 FROM orders o JOIN customers *(a, b, d, e, f) ON o.k = a
                                                          ^^^^^^^^^^^^^^

-- case: a table is named by its schema, and packed
SELECT db.orders.id, spark_catalog.db.orders.*, c.name FROM db.orders JOIN customers c ON db.orders.k = c.id JOIN items i ON i.k = db.orders.k WHERE i.orders.x = 1
-- becomes:
SELECT orders.id, orders.*, c.name FROM (SELECT struct(orders.*) AS `__lookup_1`, struct(c.*) AS `__lookup_2` FROM db.orders LATERAL VIEW inline(ask_customers(orders.k)) c) AS `__lookup_3` JOIN LATERAL (SELECT `__lookup_1`.*) AS orders JOIN LATERAL (SELECT `__lookup_2`.*) AS c JOIN items i ON i.k = orders.k WHERE i.orders.x = 1

-- case: a pipe JOIN by USING, and the star of its table
FROM orders o |> JOIN customers c USING (id) |> WHERE c.id > 1 |> SELECT o.*, c.*, c.id + 1 AS more
-- becomes:
FROM orders o |> SELECT id, * EXCEPT (id), explode(ask_customers(id)) AS `__lookup_1` |> JOIN LATERAL (SELECT `__lookup_1`.`id` AS `__lookup_using_id`, `__lookup_1`.* EXCEPT (`id`)) AS c |> DROP `__lookup_1` |> WHERE c.`__lookup_using_id` > 1 |> SELECT o.*, c.*, c.`__lookup_using_id` + 1 AS more

-- case: a pipe JOIN by USING, the star of its table, and no list of columns behind it
FROM orders o |> JOIN customers c USING (id) |> EXTEND struct(c.*) AS s
-- becomes:
FROM orders o |> JOIN scan_customers__id_name_country_zip_address AS c USING (id) |> EXTEND struct(c.*) AS s

-- case: a pipe JOIN by USING, its column by the table, and a star
FROM orders o |> JOIN customers c USING (id) |> WHERE c.id > 1 |> SELECT *
-- becomes:
FROM orders o |> JOIN scan_customers__id_name_country_zip_address AS c USING (id) |> WHERE c.id > 1 |> SELECT *

-- case: a pipe SEMI JOIN by USING, whose column comes first
FROM orders o |> LEFT SEMI JOIN customers c USING (id)
-- becomes:
FROM orders o |> SELECT id, * EXCEPT (id), explode(slice(array(true), 1, int(size(ask_customers(id)) > 0))) AS `__lookup_1` |> DROP `__lookup_1`

-- case: a pipe JOIN by USING, its column by the table, under other names
FROM orders o |> LEFT JOIN rates r(k, q, x) USING (k) |> AGGREGATE count(r.k) AS n GROUP BY r.k
-- becomes:
FROM orders o |> SELECT k, * EXCEPT (k), explode(transform(array(ask_rates(k)), `__lookup_rows` -> CASE WHEN `__lookup_rows` IS NULL THEN array() WHEN size(`__lookup_rows`) = 0 THEN array(NULL) ELSE `__lookup_rows` END)[0]) AS `__lookup_1` |> JOIN LATERAL (SELECT `__lookup_1`.`currency` AS `__lookup_using_k`, `__lookup_1`.* EXCEPT (`currency`)) AS r(`__lookup_using_k`) |> DROP `__lookup_1` |> AGGREGATE count(r.`__lookup_using_k`) AS n GROUP BY r.`__lookup_using_k` AS `k`

-- case: a RIGHT JOIN of a table that answers keys only
SELECT 1 FROM orders o RIGHT JOIN rates r ON o.currency = r.currency
-- refused:
line 1, column 24: The lookup join with r cannot run: a RIGHT JOIN needs every row of the lookup table; write LEFT JOIN with the sides swapped.
SELECT 1 FROM orders o RIGHT JOIN rates r ON o.currency = r.currency
                       ^^^^^^^^^^^^^^^^^^

-- case: a pipe JOIN by USING, its column by the table, and a star, of a table that answers keys only
FROM orders o |> JOIN rates r USING (currency) |> WHERE r.currency > 'A' |> SELECT *
-- refused:
line 1, column 57: The lookup join with r cannot run: currency is a column of USING, and no list of columns follows; name it without r.
FROM orders o |> JOIN rates r USING (currency) |> WHERE r.currency > 'A' |> SELECT *
                                                        ^^^^^^^^^^

-- case: a stream of the lookup table
SELECT 1 FROM orders o JOIN STREAM customers c ON o.k = c.id
-- refused:
line 1, column 29: Only AS and FOR SYSTEM_TIME AS OF can stand beside the lookup table customers: it is asked by key, not read.
SELECT 1 FROM orders o JOIN STREAM customers c ON o.k = c.id
                            ^^^^^^^^^^^^^^^^^^

-- case: a RIGHT JOIN, and a lookup join before it
SELECT r.rate FROM orders o JOIN rates r ON r.currency = o.currency RIGHT JOIN customers c ON o.k = c.id
-- becomes:
SELECT r.rate FROM (SELECT struct(o.*) AS `__lookup_1`, struct(r.*) AS `__lookup_2` FROM orders o LATERAL VIEW inline(ask_rates(o.currency)) r) AS `__lookup_3` JOIN LATERAL (SELECT `__lookup_1`.*) AS o JOIN LATERAL (SELECT `__lookup_2`.*) AS r RIGHT JOIN scan_customers__id AS c ON o.k = c.id

-- case: a RIGHT JOIN, and a lookup join behind it
SELECT r.rate FROM orders o RIGHT JOIN customers c ON o.k = c.id LEFT JOIN rates r ON r.currency = c.country
-- becomes:
SELECT r.rate FROM orders o RIGHT JOIN scan_customers__id_country AS c ON o.k = c.id LATERAL VIEW OUTER inline(ask_rates(c.country)) r

-- case: a RIGHT JOIN of two lookup tables, the first asked by what the second gives
SELECT r.rate FROM rates r RIGHT JOIN customers c ON r.currency = c.country
-- becomes:
SELECT r.rate FROM scan_customers__country AS c LATERAL VIEW OUTER inline(ask_rates(c.country)) r

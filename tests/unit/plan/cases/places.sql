-- case: two runs of lookup joins
SELECT * FROM orders o JOIN customers c ON o.k = c.id JOIN zips z ON z.zip = c.zip LEFT JOIN rates r ON r.currency = z.currency JOIN x ON x.id = r.kind
-- becomes:
SELECT * EXCEPT (`__lookup_4`, `__lookup_5`, `__lookup_6`, `__lookup_7`) FROM (SELECT struct(o.*) AS `__lookup_4`, struct(c.*) AS `__lookup_5`, struct(z.*) AS `__lookup_6`, struct(r.*) AS `__lookup_7` FROM (SELECT struct(o.*) AS `__lookup_1`, struct(c.*) AS `__lookup_2` FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c) AS `__lookup_3` JOIN LATERAL (SELECT `__lookup_1`.*) AS o JOIN LATERAL (SELECT `__lookup_2`.*) AS c JOIN zips z ON z.zip = c.zip LATERAL VIEW OUTER inline(ask_rates(z.currency)) r) AS `__lookup_8` JOIN LATERAL (SELECT `__lookup_4`.*) AS o JOIN LATERAL (SELECT `__lookup_5`.*) AS c JOIN LATERAL (SELECT `__lookup_6`.*) AS z JOIN LATERAL (SELECT `__lookup_7`.*) AS r JOIN x ON x.id = r.kind

-- case: comments and line breaks around packed relations stay
SELECT o.id -- the order
FROM orders o -- left
JOIN customers c ON o.k = c.id /* looked up */
JOIN zips z -- joined
  ON z.zip = c.zip
WHERE o.id > 1
-- becomes:
SELECT o.id -- the order
FROM (SELECT struct(o.*) AS `__lookup_1`, struct(c.*) AS `__lookup_2` FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c) AS `__lookup_3` JOIN LATERAL (SELECT `__lookup_1`.*) AS o JOIN LATERAL (SELECT `__lookup_2`.*) AS c /* looked up */
JOIN zips z -- joined
  ON z.zip = c.zip

WHERE o.id > 1

-- case: a relation without a name gets one
SELECT * FROM (SELECT 1 AS k) JOIN customers c ON k = c.id JOIN VALUES (1) ON true
-- becomes:
SELECT * EXCEPT (`__lookup_1`, `__lookup_2`) FROM (SELECT struct(`__lookup_relation_3`.*) AS `__lookup_1`, struct(c.*) AS `__lookup_2` FROM (SELECT 1 AS k) AS `__lookup_relation_3` LATERAL VIEW inline(ask_customers(k)) c) AS `__lookup_3` JOIN LATERAL (SELECT `__lookup_1`.*) AS `__lookup_relation_3` JOIN LATERAL (SELECT `__lookup_2`.*) AS c JOIN VALUES (1) AS `__lookup_relation_19` ON true

-- case: USING in parentheses inside others
SELECT k FROM (a JOIN (b JOIN d USING (k)) ON a.i = b.i) JOIN customers c ON d.k = c.id JOIN x ON true
-- becomes:
SELECT k FROM (SELECT struct(a.*) AS `__lookup_1`, struct(b.*) AS `__lookup_2`, struct(d.*) AS `__lookup_3`, struct(c.*) AS `__lookup_4` FROM (a JOIN (b JOIN d USING (k)) ON a.i = b.i) LATERAL VIEW inline(ask_customers(d.k)) c) AS `__lookup_5` JOIN LATERAL (SELECT `__lookup_1`.*) AS a JOIN LATERAL (SELECT `__lookup_2`.*) AS b JOIN LATERAL (SELECT `__lookup_3`.`k` AS `__lookup_using_k`, `__lookup_3`.* EXCEPT (`k`)) AS d JOIN LATERAL (SELECT `__lookup_4`.*) AS c JOIN x ON true

-- case: the dimension first, shown in its place
SELECT * FROM customers c JOIN orders o ON o.k = c.id AND c.zip <> o.zip
-- becomes:
SELECT * EXCEPT (`__lookup_1`, `__lookup_2`) FROM (SELECT struct(c.*) AS `__lookup_1`, struct(o.*) AS `__lookup_2` FROM orders o LATERAL VIEW inline(filter(ask_customers(o.k), `__lookup_row` -> (`__lookup_row`.`zip` <> o.zip))) c) AS `__lookup_3` JOIN LATERAL (SELECT `__lookup_1`.*) AS c JOIN LATERAL (SELECT `__lookup_2`.*) AS o

-- case: the dimension first, its place not shown
SELECT o.id FROM customers c RIGHT JOIN orders o ON o.k = c.id
-- becomes:
SELECT o.id FROM orders o LATERAL VIEW OUTER inline(ask_customers(o.k)) c

-- case: between commas, behind what gives its key
SELECT * FROM zips z, customers c, orders o WHERE o.k = c.id AND z.zip = c.zip
-- becomes:
SELECT * EXCEPT (`__lookup_1`, `__lookup_2`) FROM zips z, ((SELECT struct(c.*) AS `__lookup_1`, struct(o.*) AS `__lookup_2` FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c) AS `__lookup_3` JOIN LATERAL (SELECT `__lookup_1`.*) AS c JOIN LATERAL (SELECT `__lookup_2`.*) AS o) WHERE o.k = c.id AND z.zip = c.zip

-- case: commas, each asked by the one before
SELECT r.rate FROM orders o, rates r, customers c WHERE o.k = c.id AND r.currency = c.country
-- becomes:
SELECT r.rate FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c LATERAL VIEW inline(ask_rates(c.country)) r WHERE o.k = c.id AND r.currency = c.country

-- case: an equality of WHERE counts in an INNER join
SELECT r.rate FROM orders o JOIN rates r ON r.currency = o.currency WHERE r.kind = o.kind AND o.id > 3
-- becomes:
SELECT r.rate FROM orders o LATERAL VIEW inline(ask_rates(o.currency, o.kind)) r WHERE r.kind = o.kind AND o.id > 3

-- case: a constant of WHERE does not, beside another key
SELECT r.rate FROM orders o JOIN rates r ON r.currency = o.currency WHERE r.kind = 'x'
-- becomes:
SELECT r.rate FROM orders o LATERAL VIEW inline(ask_rates(o.currency)) r WHERE r.kind = 'x'

-- case: nor does any in a LEFT join
SELECT r.rate FROM orders o LEFT JOIN rates r ON r.currency = o.currency WHERE r.kind = o.kind
-- becomes:
SELECT r.rate FROM orders o LATERAL VIEW OUTER inline(ask_rates(o.currency)) r WHERE r.kind = o.kind

-- case: a cross join with its key in WHERE
SELECT c.name FROM orders o CROSS JOIN customers c WHERE o.k = c.id
-- becomes:
SELECT c.name FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c WHERE o.k = c.id

-- case: a cross join without a key
SELECT c.name FROM orders o CROSS JOIN customers c
-- becomes:
SELECT c.name FROM orders o CROSS JOIN scan_customers__name AS c

-- case: a cross join without a key, where a hint wants it asked
SELECT /*+ LOOKUP('table'='c') */ c.name FROM orders o CROSS JOIN customers c
-- refused:
line 1, column 56: The lookup join with c cannot run: a CROSS JOIN gives no key to ask for; write JOIN ... ON with an equality.
SELECT /*+ LOOKUP('table'='c') */ c.name FROM orders o CROSS JOIN customers c
                                                       ^^^^^^^^^^^^^^^^^^^^^^

-- case: exists
SELECT o.id FROM orders o WHERE o.total > 3 AND EXISTS (SELECT 1 FROM customers c WHERE c.id = o.k AND c.country <> o.country)
-- becomes:
SELECT o.id FROM orders o LATERAL VIEW inline(slice(array(struct()), 1, int(size(filter(ask_customers(o.k), `__lookup_row` -> (`__lookup_row`.`country` <> o.country))) > 0))) `__lookup_semi_1` WHERE o.total > 3 AND true

-- case: not exists, with a hint of its own
SELECT o.id FROM orders o WHERE NOT EXISTS (SELECT /*+ LOOKUP('table'='c', 'async'='false') */ * FROM customers c WHERE c.id = o.k)
-- becomes:
SELECT o.id FROM orders o LATERAL VIEW inline(slice(array(struct()), 1, int(size(ask_customers(o.k)) = 0))) `__lookup_semi_1` WHERE true

-- case: in
SELECT o.id FROM orders o WHERE o.k IN (SELECT id FROM customers WHERE country = 'US') ORDER BY o.id
-- becomes:
SELECT /*+ REBALANCE */ o.id FROM orders o LATERAL VIEW inline(slice(array(struct()), 1, int(size(ask_customers(o.k, 'US')) > 0))) `__lookup_semi_1` WHERE true ORDER BY o.id

-- case: a pair in
SELECT o.id FROM orders o WHERE (o.currency, o.kind) IN (SELECT currency, kind FROM rates)
-- becomes:
SELECT o.id FROM orders o LATERAL VIEW inline(slice(array(struct()), 1, int(size(ask_rates(o.currency, o.kind)) > 0))) `__lookup_semi_1` WHERE true

-- case: not in over a primary key, the left side not NULL
SELECT o.id FROM orders o WHERE o.k IS NOT NULL AND o.k NOT IN (SELECT id FROM customers)
-- becomes:
SELECT o.id FROM orders o LATERAL VIEW inline(slice(array(struct()), 1, int(size(ask_customers(o.k)) = 0))) `__lookup_semi_1` WHERE o.k IS NOT NULL AND true

-- case: not in where the left side may be NULL, and the table can be read
SELECT o.id FROM orders o WHERE o.k NOT IN (SELECT id FROM customers)
-- becomes:
SELECT o.id FROM orders o WHERE o.k NOT IN (SELECT id FROM scan_customers__id AS customers)

-- case: not in over a table that cannot be read
SELECT o.id FROM orders o WHERE o.currency NOT IN (SELECT currency FROM rates)
-- refused:
line 1, column 33: NOT IN over the lookup table rates cannot run: where either side may be NULL it needs the whole table. Write NOT EXISTS (SELECT 1 FROM ... WHERE column = value) instead, or add IS NOT NULL for the left side of a NOT IN over the primary key.
SELECT o.id FROM orders o WHERE o.currency NOT IN (SELECT currency FROM rates)
                                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

-- case: exists beside or
SELECT o.id FROM orders o WHERE o.total > 3 OR EXISTS (SELECT 1 FROM customers c WHERE c.id = o.k)
-- becomes:
SELECT o.id FROM orders o WHERE o.total > 3 OR EXISTS (SELECT 1 FROM (SELECT inline(ask_customers(o.k))) AS c WHERE true)

-- case: an aggregate in exists is always true
SELECT o.id FROM orders o WHERE EXISTS (SELECT max(c.zip) FROM customers c WHERE c.id = o.k)
-- becomes:
SELECT o.id FROM orders o WHERE EXISTS (SELECT max(c.zip) FROM (SELECT inline(ask_customers(o.k))) AS c WHERE true)

-- case: a scalar subquery
SELECT o.id, (SELECT max(c.name) FROM customers c WHERE c.id = o.k) AS n FROM orders o
-- becomes:
SELECT o.id, (SELECT max(c.name) FROM (SELECT inline(ask_customers(o.k))) AS c WHERE true) AS n FROM orders o

-- case: a lateral subquery
SELECT o.id, x.name FROM orders o, LATERAL (SELECT c.name FROM customers c WHERE c.id = o.k) x
-- becomes:
SELECT o.id, x.name FROM orders o, LATERAL (SELECT c.name FROM (SELECT inline(ask_customers(o.k))) AS c WHERE true) x

-- case: one row by a constant
SELECT name FROM customers WHERE id = 7
-- becomes:
SELECT name FROM (SELECT inline(ask_customers(7))) AS customers WHERE true

-- case: using
SELECT * FROM orders o LEFT JOIN customers c USING (id) WHERE c.id IS NULL
-- becomes:
SELECT `id`, * EXCEPT (`id`, `c`.`__lookup_using_id`) FROM orders o LATERAL VIEW OUTER inline(ask_customers(id)) c AS `__lookup_using_id`, `name`, `country`, `zip`, `address` WHERE c.`__lookup_using_id` IS NULL

-- case: using, the dimension's own column selected
SELECT id, c.id, c.name FROM orders o JOIN customers c USING (id)
-- becomes:
SELECT id, c.`__lookup_using_id` AS `id`, c.name FROM orders o LATERAL VIEW inline(ask_customers(id)) c AS `__lookup_using_id`, `name`

-- case: using, before another relation
SELECT * EXCEPT (name) FROM orders o JOIN customers c USING (id) JOIN zips z ON z.zip = c.zip
-- becomes:
SELECT `id`, * EXCEPT (`id`, `c`.`__lookup_using_id`, `__lookup_1`, `__lookup_2`, name) FROM (SELECT struct(o.*) AS `__lookup_1`, struct(c.*) AS `__lookup_2` FROM orders o LATERAL VIEW inline(ask_customers(id)) c AS `__lookup_using_id`, `name`, `country`, `zip`, `address`) AS `__lookup_3` JOIN LATERAL (SELECT `__lookup_1`.*) AS o JOIN LATERAL (SELECT `__lookup_2`.*) AS c JOIN zips z ON z.zip = c.zip

-- case: using a column that the dimension does not have
SELECT 1 FROM orders o JOIN customers c USING (nope)
-- refused:
line 1, column 48: The lookup join with c cannot run: c cannot be looked up by column nope.
SELECT 1 FROM orders o JOIN customers c USING (nope)
                                               ^^^^

-- case: an ordinary using before a lookup join in the middle
SELECT 1 FROM orders o JOIN zips z USING (zip) JOIN customers c ON c.id = o.k JOIN x ON x.id = c.id
-- becomes:
SELECT 1 FROM (SELECT struct(o.*) AS `__lookup_1`, struct(z.*) AS `__lookup_2`, struct(c.*) AS `__lookup_3` FROM orders o JOIN zips z USING (zip) LATERAL VIEW inline(ask_customers(o.k)) c) AS `__lookup_4` JOIN LATERAL (SELECT `__lookup_1`.*) AS o JOIN LATERAL (SELECT `__lookup_2`.`zip` AS `__lookup_using_zip`, `__lookup_2`.* EXCEPT (`zip`)) AS z JOIN LATERAL (SELECT `__lookup_3`.*) AS c JOIN x ON x.id = c.id

-- case: semi before another relation
SELECT * FROM orders o LEFT SEMI JOIN customers c ON o.k = c.id JOIN zips z ON z.zip = o.zip
-- becomes:
SELECT * EXCEPT (`__lookup_1`) FROM (SELECT struct(o.*) AS `__lookup_1` FROM orders o LATERAL VIEW inline(slice(array(struct()), 1, int(size(ask_customers(o.k)) > 0))) `__lookup_semi_2`) AS `__lookup_3` JOIN LATERAL (SELECT `__lookup_1`.*) AS o JOIN zips z ON z.zip = o.zip

-- case: anti with conditions on either side
SELECT * FROM orders o LEFT ANTI JOIN customers c ON o.k = c.id AND o.total > 3 AND c.country = o.country
-- becomes:
SELECT * FROM orders o LATERAL VIEW inline(slice(array(struct()), 1, int(size(filter(ask_customers(if((o.total > 3), o.k, NULL)), `__lookup_row` -> (`__lookup_row`.`country` = o.country))) = 0))) `__lookup_semi_1`

-- case: parentheses with a name
SELECT x.name FROM zips z JOIN (orders o JOIN customers c ON o.k = c.id) AS x ON x.zip = z.zip
-- becomes:
SELECT x.name FROM zips z JOIN (SELECT * FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c) AS x ON x.zip = z.zip

-- case: pipes
FROM orders o |> WHERE o.id > 1 |> LEFT JOIN customers c ON o.k = c.id AND c.country = 'US' |> ORDER BY o.id
-- becomes:
FROM orders o |> WHERE o.id > 1 |> EXTEND explode(transform(array(ask_customers(o.k)), `__lookup_rows` -> CASE WHEN `__lookup_rows` IS NULL THEN array() WHEN size(filter(`__lookup_rows`, `__lookup_row` -> (`__lookup_row`.`country` = 'US'))) = 0 THEN array(NULL) ELSE filter(`__lookup_rows`, `__lookup_row` -> (`__lookup_row`.`country` = 'US')) END)[0]) AS `__lookup_1` |> JOIN LATERAL (SELECT `__lookup_1`.*) AS c |> DROP `__lookup_1` |> SELECT /*+ REBALANCE */ * |> ORDER BY o.id

-- case: pipes, semi and using
FROM orders o |> LEFT ANTI JOIN customers c ON o.k = c.id |> JOIN rates USING (kind, currency) |> SELECT id, rate
-- becomes:
FROM orders o |> EXTEND explode(slice(array(true), 1, int(size(ask_customers(o.k)) = 0))) AS `__lookup_1` |> DROP `__lookup_1` |> SELECT kind, currency, * EXCEPT (kind, currency), explode(ask_rates(currency, kind)) AS `__lookup_2` |> JOIN LATERAL (SELECT `__lookup_2`.*) AS rates |> DROP `__lookup_2` |> SELECT id, rate

-- case: a lookup join in the middle before pipes
FROM orders o JOIN customers c ON o.k = c.id JOIN zips z ON z.zip = c.zip |> SELECT *
-- becomes:
FROM (SELECT struct(o.*) AS `__lookup_1`, struct(c.*) AS `__lookup_2` FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c) AS `__lookup_3` JOIN LATERAL (SELECT `__lookup_1`.*) AS o JOIN LATERAL (SELECT `__lookup_2`.*) AS c JOIN zips z ON z.zip = c.zip |> DROP `__lookup_1`, `__lookup_2` |> SELECT *

-- case: several inserts
FROM orders o JOIN customers c ON o.k = c.id INSERT INTO a SELECT o.id WHERE o.id > 1 INSERT INTO b SELECT c.name
-- becomes:
FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c INSERT INTO a SELECT o.id WHERE o.id > 1 INSERT INTO b SELECT c.name

-- case: a script
BEGIN DECLARE x INT; SET x = 1; SELECT c.name FROM orders o JOIN customers c ON o.k = c.id AND o.id > x; INSERT INTO t SELECT name FROM customers WHERE id = x; END
-- becomes:
BEGIN DECLARE x INT; SET x = 1; SELECT c.name FROM orders o LATERAL VIEW inline(ask_customers(if((o.id > x), o.k, NULL))) c; INSERT INTO t SELECT name FROM scan_customers__id_name AS customers WHERE id = x; END

-- case: a lookup table right in MERGE
MERGE INTO t USING customers c ON t.id = c.id WHEN MATCHED THEN DELETE
-- refused:
line 1, column 20: The lookup table customers cannot stand here: it is asked by a query. Write (SELECT * FROM customers) instead.
MERGE INTO t USING customers c ON t.id = c.id WHEN MATCHED THEN DELETE
                   ^^^^^^^^^

-- case: identifier
SELECT c.name FROM orders o JOIN IDENTIFIER('customers') c ON o.k = c.id JOIN IDENTIFIER('zips') z ON z.zip = c.zip
-- becomes:
SELECT c.name FROM (SELECT struct(o.*) AS `__lookup_1`, struct(c.*) AS `__lookup_2` FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c) AS `__lookup_3` JOIN LATERAL (SELECT `__lookup_1`.*) AS o JOIN LATERAL (SELECT `__lookup_2`.*) AS c JOIN IDENTIFIER('zips') z ON z.zip = c.zip

-- case: words as names
SELECT window.name FROM orders set JOIN customers window ON set.k = window.id
-- refused:
line 1, column 61: This condition of a lookup join cannot be parsed.
SELECT window.name FROM orders set JOIN customers window ON set.k = window.id
                                                            ^^^^^^^

-- case: TABLE reads the whole table
TABLE customers
-- becomes:
SELECT * FROM scan_customers__id_name_country_zip_address AS customers

-- case: a subquery condition of an inner join goes where it can stand
SELECT * FROM orders o JOIN customers c ON o.k = c.id AND c.zip IN (SELECT zip FROM zips) AND pyf(c.name)
-- becomes:
SELECT * EXCEPT (`__lookup_1`, `__lookup_2`) FROM (SELECT struct(o.*) AS `__lookup_1`, struct(c.*) AS `__lookup_2` FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c WHERE (c.zip IN (SELECT zip FROM zips)) AND (pyf(c.name))) AS `__lookup_3` JOIN LATERAL (SELECT `__lookup_1`.*) AS o JOIN LATERAL (SELECT `__lookup_2`.*) AS c

-- case: a lookup table without keys and without a scan
SELECT 1 FROM rates r JOIN orders o ON o.x > r.rate
-- refused:
line 1, column 15: rates cannot be read whole: connector 'async' answers keys only. Put it on the right side of a JOIN with an equality.
SELECT 1 FROM rates r JOIN orders o ON o.x > r.rate
              ^^^^^

-- case: in, with a query among its keys
SELECT o.id FROM orders o WHERE o.cur IN (SELECT currency FROM rates WHERE kind = (SELECT max(kind) FROM other))
-- becomes:
SELECT o.id FROM orders o LATERAL VIEW inline(slice(array(struct()), 1, int(size(ask_rates(named_struct('currency', o.cur, 'kind', (SELECT max(kind) FROM other)))) > 0))) `__lookup_semi_1` WHERE true

-- case: asked by the outer query and a query of its own
SELECT o.id, (SELECT max(rate) FROM rates r WHERE r.currency = o.cur AND r.kind = (SELECT max(kind) FROM other)) FROM orders o
-- becomes:
SELECT o.id, (SELECT max(rate) FROM (SELECT inline(ask_rates(named_struct('currency', o.cur, 'kind', (SELECT max(kind) FROM other))))) AS r WHERE true AND true) FROM orders o

-- case: asked by a constant and a query
SELECT * FROM rates WHERE kind = 'spot' AND currency = (SELECT max(cur) FROM orders)
-- becomes:
SELECT * FROM (SELECT inline(ask_rates(named_struct('currency', (SELECT max(cur) FROM orders), 'kind', 'spot')))) AS rates WHERE true AND true

-- case: a LATERAL subquery behind a comma, in a chain that is packed
SELECT x.u, c.name FROM orders o, LATERAL (SELECT o.k + 1 AS u) x JOIN customers c ON c.id = x.u JOIN zips z ON z.zip = c.zip
-- becomes:
SELECT x.u, c.name FROM (SELECT struct(o.*) AS `__lookup_1`, struct(x.*) AS `__lookup_2`, struct(c.*) AS `__lookup_3` FROM orders o, LATERAL (SELECT o.k + 1 AS u) x LATERAL VIEW inline(ask_customers(x.u)) c) AS `__lookup_4` JOIN LATERAL (SELECT `__lookup_1`.*) AS o JOIN LATERAL (SELECT `__lookup_2`.*) AS x JOIN LATERAL (SELECT `__lookup_3`.*) AS c JOIN zips z ON z.zip = c.zip

-- case: a LATERAL subquery in a chain behind a comma names what comes before that
SELECT x.u, c.name FROM orders o, items i CROSS JOIN LATERAL (SELECT o.k + i.k AS u) x JOIN customers c ON c.id = x.u JOIN zips z ON z.zip = c.zip
-- becomes:
SELECT x.u, c.name FROM (SELECT struct(o.*) AS `__lookup_1`, struct(i.*) AS `__lookup_2`, struct(x.*) AS `__lookup_3`, struct(c.*) AS `__lookup_4` FROM orders o, items i CROSS JOIN LATERAL (SELECT o.k + i.k AS u) x LATERAL VIEW inline(ask_customers(x.u)) c) AS `__lookup_5` JOIN LATERAL (SELECT `__lookup_1`.*) AS o JOIN LATERAL (SELECT `__lookup_2`.*) AS i JOIN LATERAL (SELECT `__lookup_3`.*) AS x JOIN LATERAL (SELECT `__lookup_4`.*) AS c JOIN zips z ON z.zip = c.zip

-- case: ON names what comes before a comma, and another join follows
SELECT i.id, c.name FROM orders o, items i JOIN customers c ON c.id = o.k JOIN zips z ON z.zip = i.zip
-- becomes:
SELECT i.id, c.name FROM (SELECT struct(o.*) AS `__lookup_1`, struct(i.*) AS `__lookup_2`, struct(c.*) AS `__lookup_3` FROM orders o, items i LATERAL VIEW inline(ask_customers(o.k)) c) AS `__lookup_4` JOIN LATERAL (SELECT `__lookup_1`.*) AS o JOIN LATERAL (SELECT `__lookup_2`.*) AS i JOIN LATERAL (SELECT `__lookup_3`.*) AS c JOIN zips z ON z.zip = i.zip

-- case: a LATERAL subquery in the chain that gives a key names the lookup table
SELECT * FROM customers c, orders o JOIN LATERAL (SELECT upper(c.name) AS u) x WHERE c.id = o.k
-- becomes:
SELECT * FROM scan_customers__id_name_country_zip_address AS c, orders o JOIN LATERAL (SELECT upper(c.name) AS u) x WHERE c.id = o.k

-- case: a LATERAL subquery in the chain that gives a key names the lookup table, where a hint wants it asked
SELECT /*+ LOOKUP('table'='c') */ * FROM customers c, orders o JOIN LATERAL (SELECT upper(c.name) AS u) x WHERE c.id = o.k
-- refused:
line 1, column 42: The lookup join with c cannot run: its key comes from joins behind the comma that name it themselves; write CROSS JOIN in place of the comma.
SELECT /*+ LOOKUP('table'='c') */ * FROM customers c, orders o JOIN LATERAL (SELECT upper(c.name) AS u) x WHERE c.id = o.k
                                         ^^^^^^^^^^^

-- case: ON names a lookup table before a comma that waits for its key
SELECT * FROM customers c, orders o JOIN rates r ON r.currency = c.country JOIN zips z ON z.zip = o.zip WHERE c.id = o.k
-- becomes:
SELECT * EXCEPT (`__lookup_1`, `__lookup_2`, `__lookup_3`) FROM (SELECT struct(c.*) AS `__lookup_1`, struct(o.*) AS `__lookup_2`, struct(r.*) AS `__lookup_3` FROM scan_customers__id_name_country_zip_address AS c, orders o LATERAL VIEW inline(ask_rates(c.country)) r) AS `__lookup_4` JOIN LATERAL (SELECT `__lookup_1`.*) AS c JOIN LATERAL (SELECT `__lookup_2`.*) AS o JOIN LATERAL (SELECT `__lookup_3`.*) AS r JOIN zips z ON z.zip = o.zip WHERE c.id = o.k

-- case: ON names a lookup table before a comma that waits for its key, where a hint wants it asked
SELECT /*+ LOOKUP('table'='c') */ * FROM customers c, orders o JOIN rates r ON r.currency = c.country JOIN zips z ON z.zip = o.zip WHERE c.id = o.k
-- refused:
line 1, column 42: The lookup join with c cannot run: its key comes from joins behind the comma that name it themselves; write CROSS JOIN in place of the comma.
SELECT /*+ LOOKUP('table'='c') */ * FROM customers c, orders o JOIN rates r ON r.currency = c.country JOIN zips z ON z.zip = o.zip WHERE c.id = o.k
                                         ^^^^^^^^^^^

-- case: ON names what comes before the comma, too, and the lookup table first in its chain
SELECT 1 FROM orders o, customers c JOIN zips z ON z.zip = c.zip AND z.k = o.k
-- becomes:
SELECT 1 FROM orders o, scan_customers__zip AS c JOIN zips z ON z.zip = c.zip AND z.k = o.k

-- case: a lookup table that connects two others is looked up behind the one
SELECT 1 FROM orders o, zips z, rates r WHERE r.currency = o.currency AND r.kind = z.kind
-- becomes:
SELECT 1 FROM (SELECT struct(o.*) AS `__lookup_1`, struct(r.*) AS `__lookup_2` FROM orders o LATERAL VIEW inline(ask_rates(o.currency)) r) AS `__lookup_3` JOIN LATERAL (SELECT `__lookup_1`.*) AS o JOIN LATERAL (SELECT `__lookup_2`.*) AS r, zips z WHERE r.currency = o.currency AND r.kind = z.kind

-- case: a lookup table that connects two others, between joins that would multiply them
SELECT 1 FROM orders o CROSS JOIN zips z JOIN customers c ON c.country = o.country AND c.zip = z.zip
-- becomes:
SELECT 1 FROM orders o CROSS JOIN zips z JOIN scan_customers__country_zip AS c ON c.country = o.country AND c.zip = z.zip

-- case: every column of a lookup table that connects two others
SELECT * FROM orders o, zips z, rates r WHERE r.currency = o.currency AND r.kind = z.kind
-- becomes:
SELECT * EXCEPT (`__lookup_1`, `__lookup_2`, `__lookup_4`) FROM (SELECT struct(o.*) AS `__lookup_1`, struct(r.*) AS `__lookup_2` FROM orders o LATERAL VIEW inline(ask_rates(o.currency)) r) AS `__lookup_3`, (SELECT struct(z.*) AS `__lookup_4` FROM zips z) AS `__lookup_5` JOIN LATERAL (SELECT `__lookup_1`.*) AS o JOIN LATERAL (SELECT `__lookup_4`.*) AS z JOIN LATERAL (SELECT `__lookup_2`.*) AS r WHERE r.currency = o.currency AND r.kind = z.kind

-- case: a product that the user wrote, before a join by one of its sides
SELECT 1 FROM orders o CROSS JOIN zips z JOIN customers c ON c.id = o.k
-- becomes:
SELECT 1 FROM orders o CROSS JOIN zips z LATERAL VIEW inline(ask_customers(o.k)) c

-- case: what gives the key is joined by ON with what stands before its comma
SELECT 1 FROM customers c, zips z, orders o JOIN other x ON x.k = o.k AND x.zip = z.zip WHERE c.id = x.id
-- becomes:
SELECT 1 FROM scan_customers__id AS c, zips z, orders o JOIN other x ON x.k = o.k AND x.zip = z.zip WHERE c.id = x.id

-- case: EXISTS behind views with names, and the first of them with two columns
SELECT o.k FROM orders o LATERAL VIEW explode(o.i) t AS x, y LATERAL VIEW explode(x) u AS z WHERE EXISTS (SELECT 1 FROM customers c WHERE c.id = u.z)
-- becomes:
SELECT o.k FROM orders o LATERAL VIEW explode(o.i) t AS x, y LATERAL VIEW explode(x) u AS z LATERAL VIEW inline(slice(array(struct()), 1, int(size(ask_customers(u.z)) > 0))) `__lookup_semi_1` WHERE true

-- case: a column and a function that are called as the words of an ASOF JOIN
SELECT c.name FROM orders o JOIN customers c ON o.k = c.id AND o.k > asof AND match_condition (o.k)
-- becomes:
SELECT c.name FROM orders o LATERAL VIEW inline(ask_customers(if((o.k > asof) AND (match_condition (o.k)), o.k, NULL))) c

-- case: an EXISTS whose FROM has a LATERAL VIEW is no semi join: the view may drop all rows
SELECT 1 FROM orders o WHERE EXISTS (SELECT 1 FROM customers c LATERAL VIEW explode(array()) x AS y WHERE c.id = o.k)
-- becomes:
SELECT 1 FROM orders o WHERE EXISTS (SELECT 1 FROM (SELECT inline(ask_customers(o.k))) AS c LATERAL VIEW explode(array()) x AS y WHERE true)

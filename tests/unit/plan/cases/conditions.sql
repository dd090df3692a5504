-- case: a condition over the dimension is checked on the rows found
SELECT c.name FROM orders o LEFT JOIN customers c ON o.k = c.id AND c.country <> 'DE'
-- becomes:
SELECT c.name FROM orders o LATERAL VIEW OUTER inline(filter(ask_customers(o.k), `__lookup_row` -> (`__lookup_row`.`country` <> 'DE'))) c

-- case: the key may be written on either side
SELECT c.name FROM orders o LEFT JOIN customers c ON c.id = o.k
-- becomes:
SELECT c.name FROM orders o LATERAL VIEW OUTER inline(ask_customers(o.k)) c

-- case: a condition on the left alone goes into the key
SELECT c.name FROM orders o LEFT JOIN customers c ON o.k = c.id AND o.total > 3 AND o.open
-- becomes:
SELECT c.name FROM orders o LATERAL VIEW OUTER inline(ask_customers(if((o.total > 3) AND (o.open), o.k, NULL))) c

-- case: parentheses around the whole condition and around parts
SELECT c.name FROM orders o JOIN customers c ON ((o.k = c.id) AND (c.zip > 'a' OR c.zip IS NULL))
-- becomes:
SELECT c.name FROM orders o LATERAL VIEW inline(filter(ask_customers(o.k), `__lookup_row` -> (`__lookup_row`.`zip` > 'a' OR `__lookup_row`.`zip` IS NULL))) c

-- case: AND binds closer than OR: what each branch asks for is a key
SELECT c.name FROM orders o JOIN customers c ON o.k = c.id AND c.zip > 'a' OR o.k = c.id AND o.total > 3
-- becomes:
SELECT c.name FROM orders o LATERAL VIEW inline(filter(ask_customers(o.k), `__lookup_row` -> (o.k = `__lookup_row`.`id` AND `__lookup_row`.`zip` > 'a' OR o.k = `__lookup_row`.`id` AND o.total > 3))) c

-- case: the AND of BETWEEN and CASE does not cut
SELECT c.name FROM orders o JOIN customers c ON c.zip BETWEEN 'a' AND 'b' AND CASE WHEN o.a AND c.zip = 'x' THEN true ELSE false END AND o.k = c.id
-- becomes:
SELECT c.name FROM orders o LATERAL VIEW inline(filter(ask_customers(o.k), `__lookup_row` -> (`__lookup_row`.`zip` BETWEEN 'a' AND 'b') AND (CASE WHEN o.a AND `__lookup_row`.`zip` = 'x' THEN true ELSE false END))) c

-- case: composite keys come in the order of the table's columns
SELECT r.rate FROM orders o JOIN rates r ON o.kind = r.kind AND o.cur = r.currency
-- becomes:
SELECT r.rate FROM orders o LATERAL VIEW inline(ask_rates(o.cur, o.kind)) r

-- case: a constant is a key too
SELECT r.rate FROM orders o JOIN rates r ON r.currency = o.cur AND r.kind = 'spot'
-- becomes:
SELECT r.rate FROM orders o LATERAL VIEW inline(ask_rates(o.cur, 'spot')) r

-- case: constants alone
SELECT r.rate FROM orders o LEFT JOIN rates r ON r.kind = 'spot'
-- becomes:
SELECT r.rate FROM orders o LATERAL VIEW OUTER inline(ask_rates('spot')) r

-- case: beside the whole primary key other equalities are checked on the row
SELECT c.name FROM orders o LEFT JOIN customers c ON o.k = c.id AND c.country = 'US' AND c.zip = o.zip
-- becomes:
SELECT c.name FROM orders o LATERAL VIEW OUTER inline(filter(ask_customers(o.k), `__lookup_row` -> (`__lookup_row`.`country` = 'US') AND (`__lookup_row`.`zip` = o.zip))) c

-- case: of two equalities for one column the first is the key
SELECT c.name FROM orders o JOIN customers c ON c.id = o.k AND c.id = o.j
-- becomes:
SELECT c.name FROM orders o LATERAL VIEW inline(filter(ask_customers(o.k), `__lookup_row` -> (`__lookup_row`.`id` = o.j))) c

-- case: an equality with a column goes before one with a constant
SELECT r.rate FROM orders o JOIN rates r ON r.currency = 'EUR' AND r.currency = o.cur
-- becomes:
SELECT r.rate FROM orders o LATERAL VIEW inline(filter(ask_rates(o.cur), `__lookup_row` -> (`__lookup_row`.`currency` = 'EUR'))) r

-- case: expressions and functions are keys
SELECT r.rate FROM orders o JOIN rates r ON upper(trim(o.cur)) || 'X' = r.currency
-- becomes:
SELECT r.rate FROM orders o LATERAL VIEW inline(ask_rates(upper(trim(o.cur)) || 'X')) r

-- case: LEFT and RIGHT are functions here
SELECT r.rate FROM orders o JOIN rates r ON left(o.cur, 3) = r.currency AND right(r.kind, 1) = 't'
-- becomes:
SELECT r.rate FROM orders o LATERAL VIEW inline(filter(ask_rates(left(o.cur, 3)), `__lookup_row` -> (right(`__lookup_row`.`kind`, 1) = 't'))) r

-- case: unqualified columns of the dimension are found
SELECT name FROM orders o JOIN customers c ON k = id AND country = upper(land)
-- becomes:
SELECT name FROM orders o LATERAL VIEW inline(filter(ask_customers(k), `__lookup_row` -> (`__lookup_row`.`country` = upper(land)))) c

-- case: a field of a struct column
SELECT 1 FROM orders o JOIN customers c ON o.k = c.id AND c.address.city = o.town AND address.city <> 'X'
-- becomes:
SELECT 1 FROM orders o LATERAL VIEW inline(filter(ask_customers(o.k), `__lookup_row` -> (`__lookup_row`.`address`.city = o.town) AND (`__lookup_row`.`address`.city <> 'X'))) c

-- case: a null-safe equality is no key of a source that cannot be asked for NULL
SELECT 1 FROM orders o JOIN customers c ON o.k = c.id AND c.zip <=> o.zip
-- becomes:
SELECT 1 FROM orders o LATERAL VIEW inline(filter(ask_customers(o.k), `__lookup_row` -> (`__lookup_row`.`zip` <=> o.zip))) c

-- case: a lambda in a condition
SELECT 1 FROM orders o JOIN customers c ON o.k = c.id AND exists(o.arr, z -> z = c.zip)
-- becomes:
SELECT 1 FROM orders o LATERAL VIEW inline(filter(ask_customers(o.k), `__lookup_row` -> (exists(o.arr, z -> z = `__lookup_row`.`zip`)))) c

-- case: a scalar subquery as key
SELECT c.name FROM orders o JOIN customers c ON c.id = (SELECT max(k) FROM items)
-- becomes:
SELECT c.name FROM orders o LATERAL VIEW inline(ask_customers((SELECT max(k) FROM items))) c

-- case: an equality of two dimension columns is not a key
SELECT 1 FROM orders o JOIN customers c ON o.k = c.id AND c.zip = c.country
-- becomes:
SELECT 1 FROM orders o LATERAL VIEW inline(filter(ask_customers(o.k), `__lookup_row` -> (`__lookup_row`.`zip` = `__lookup_row`.`country`))) c

-- case: a value that needs a dimension column is not a key, and two of its columns are none
SELECT c.name FROM orders o JOIN customers c ON o.k + length(c.zip) = c.id AND c.id = c.zip
-- becomes:
SELECT c.name FROM orders o JOIN scan_customers__id_name_zip AS c ON o.k + length(c.zip) = c.id AND c.id = c.zip

-- case: a left table that has a column called like the alias
SELECT 1 FROM orders o JOIN customers c ON o.k = c.id AND o.c = c.zip
-- becomes:
SELECT 1 FROM orders o LATERAL VIEW inline(filter(ask_customers(o.k), `__lookup_row` -> (o.c = `__lookup_row`.`zip`))) c

-- case: no key at all
SELECT 1 FROM orders o JOIN customers c ON c.id > o.k
-- becomes:
SELECT 1 FROM orders o JOIN scan_customers__id AS c ON c.id > o.k

-- case: no key at all, where a hint wants it asked
SELECT /*+ LOOKUP('table'='c') */ 1 FROM orders o JOIN customers c ON c.id > o.k
-- refused:
line 1, column 71: The lookup join with c has no key: no equality between an expression of the left side and a column that can be asked by. Columns that can be asked by: id, name, country, zip.
SELECT /*+ LOOKUP('table'='c') */ 1 FROM orders o JOIN customers c ON c.id > o.k
                                                                      ^^^^^^^^^^

-- case: no key because the dimension column is inside an expression
SELECT 1 FROM orders o JOIN customers c ON c.id + 1 = o.k
-- becomes:
SELECT 1 FROM orders o JOIN scan_customers__id AS c ON c.id + 1 = o.k

-- case: no key because the dimension column is inside an expression, where a hint wants it asked
SELECT /*+ LOOKUP('table'='c') */ 1 FROM orders o JOIN customers c ON c.id + 1 = o.k
-- refused:
line 1, column 71: The lookup join with c has no key: no equality between an expression of the left side and a column that can be asked by. Columns that can be asked by: id, name, country, zip.
SELECT /*+ LOOKUP('table'='c') */ 1 FROM orders o JOIN customers c ON c.id + 1 = o.k
                                                                      ^^^^^^^^^^^^^^

-- case: a struct column cannot be asked by
SELECT 1 FROM orders o JOIN customers c ON c.address = o.address
-- becomes:
SELECT 1 FROM orders o JOIN scan_customers__address AS c ON c.address = o.address

-- case: a struct column cannot be asked by, where a hint wants it asked
SELECT /*+ LOOKUP('table'='c') */ 1 FROM orders o JOIN customers c ON c.address = o.address
-- refused:
line 1, column 71: The lookup join with c has no key: no equality between an expression of the left side and a column that can be asked by. Columns that can be asked by: id, name, country, zip.
SELECT /*+ LOOKUP('table'='c') */ 1 FROM orders o JOIN customers c ON c.address = o.address
                                                                      ^^^^^^^^^^^^^^^^^^^^^

-- case: a subquery over the dimension in a left join
SELECT 1 FROM orders o LEFT JOIN customers c ON o.k = c.id AND c.zip IN (SELECT zip FROM zips)
-- becomes:
SELECT 1 FROM orders o LEFT JOIN scan_customers__id_zip AS c ON o.k = c.id AND c.zip IN (SELECT zip FROM zips)

-- case: a subquery over the dimension in a left join, where a hint wants it asked
SELECT /*+ LOOKUP('table'='c') */ 1 FROM orders o LEFT JOIN customers c ON o.k = c.id AND c.zip IN (SELECT zip FROM zips)
-- refused:
line 1, column 91: The lookup join with c cannot run: its ON condition has a subquery. Compute it in a subquery on the left first.
SELECT /*+ LOOKUP('table'='c') */ 1 FROM orders o LEFT JOIN customers c ON o.k = c.id AND c.zip IN (SELECT zip FROM zips)
                                                                                          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

-- case: a subquery over the dimension in an inner join
SELECT 1 FROM orders o JOIN customers c ON o.k = c.id AND c.zip > (SELECT min(zip) FROM zips)
-- becomes:
SELECT 1 FROM (SELECT struct(o.*) AS `__lookup_1`, struct(c.*) AS `__lookup_2` FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c WHERE (c.zip > (SELECT min(zip) FROM zips))) AS `__lookup_3` JOIN LATERAL (SELECT `__lookup_1`.*) AS o JOIN LATERAL (SELECT `__lookup_2`.*) AS c

-- case: a chain of comparisons is not a key, for Spark reads it from the left
SELECT 1 FROM orders o JOIN customers c ON o.k = c.id AND c.zip = o.a >= o.b
-- becomes:
SELECT 1 FROM orders o LATERAL VIEW inline(filter(ask_customers(o.k), `__lookup_row` -> (`__lookup_row`.`zip` = o.a >= o.b))) c

-- case: an equality inside CASE does not hide the one around it
SELECT 1 FROM orders o JOIN customers c ON CASE WHEN o.x = 1 THEN o.k ELSE 2 END = c.id
-- becomes:
SELECT 1 FROM orders o LATERAL VIEW inline(ask_customers(CASE WHEN o.x = 1 THEN o.k ELSE 2 END)) c

-- case: names that are also words of SQL
SELECT 1 FROM orders comment JOIN customers end ON comment.k = end.id AND end.zip > 'a' AND comment = end.name
-- becomes:
SELECT 1 FROM orders comment LATERAL VIEW inline(filter(ask_customers(comment.k), `__lookup_row` -> (`__lookup_row`.`zip` > 'a') AND (comment = `__lookup_row`.`name`))) end

-- case: a subquery in the key has columns of its own
SELECT 1 FROM orders o JOIN customers c ON c.id = (SELECT max(id) FROM orders)
-- becomes:
SELECT 1 FROM orders o LATERAL VIEW inline(ask_customers((SELECT max(id) FROM orders))) c

-- case: a function called exists is not a subquery
SELECT 1 FROM orders o LEFT JOIN customers c ON c.id = o.k AND exists(array(o.k), x -> x > 2)
-- becomes:
SELECT 1 FROM orders o LATERAL VIEW OUTER inline(ask_customers(if((exists(array(o.k), x -> x > 2)), o.k, NULL))) c

-- case: a field of a struct that is called like a dimension column
SELECT address.city FROM (SELECT address.k FROM rich address) o JOIN customers t ON o.k = t.id
-- becomes:
SELECT address.city FROM (SELECT address.k FROM rich address) o LATERAL VIEW inline(ask_customers(o.k)) t

-- case: a constant of WHERE stays where a later join may fill the lookup table with NULLs
SELECT c.name, o.x FROM customers c FULL JOIN orders o ON c.id = o.k WHERE c.id = 1
-- becomes:
SELECT c.name, o.x FROM (SELECT inline(ask_customers(1))) AS c FULL JOIN orders o ON c.id = o.k WHERE c.id = 1

-- case: a constant of WHERE goes where no join can do that
SELECT c.name, o.x FROM customers c LEFT JOIN orders o ON c.id = o.k WHERE c.id = 1
-- becomes:
SELECT c.name, o.x FROM (SELECT inline(ask_customers(1))) AS c LEFT JOIN orders o ON c.id = o.k WHERE true

-- case: a constant of WHERE stays for a lookup table in parentheses behind a LEFT JOIN
SELECT o.x FROM orders o LEFT JOIN (customers c LEFT JOIN zips z ON z.zip = c.zip) ON c.name = o.name WHERE c.id = 1
-- becomes:
SELECT o.x FROM orders o LEFT JOIN ((SELECT inline(ask_customers(1))) AS c LEFT JOIN zips z ON z.zip = c.zip) ON c.name = o.name WHERE c.id = 1

-- case: a comma before a RIGHT JOIN joins: its lookup table is not moved behind that
SELECT c.name, o.x FROM orders o, customers c RIGHT JOIN zips z ON z.zip = c.zip WHERE c.id = o.k
-- becomes:
SELECT c.name, o.x FROM (SELECT struct(o.*) AS `__lookup_1`, struct(c.*) AS `__lookup_2` FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c) AS `__lookup_3` JOIN LATERAL (SELECT `__lookup_1`.*) AS o JOIN LATERAL (SELECT `__lookup_2`.*) AS c RIGHT JOIN zips z ON z.zip = c.zip WHERE c.id = o.k

-- case: the rows of a key that a query gives are checked behind the lookup: Spark has no lambda over a query
SELECT o.x FROM orders o JOIN customers c ON c.id = (SELECT max(k) FROM other) AND c.country <> 'DE'
-- becomes:
SELECT o.x FROM (SELECT struct(o.*) AS `__lookup_1`, struct(c.*) AS `__lookup_2` FROM orders o LATERAL VIEW inline(ask_customers((SELECT max(k) FROM other))) c WHERE (c.country <> 'DE')) AS `__lookup_3` JOIN LATERAL (SELECT `__lookup_1`.*) AS o JOIN LATERAL (SELECT `__lookup_2`.*) AS c

-- case: a key that a query gives, and a condition on the rows found, in a LEFT JOIN
SELECT o.x FROM orders o LEFT JOIN customers c ON c.id = (SELECT max(k) FROM other) AND c.country <> 'DE'
-- becomes:
SELECT o.x FROM orders o LEFT JOIN scan_customers__id_country AS c ON c.id = (SELECT max(k) FROM other) AND c.country <> 'DE'

-- case: a key that a query gives, and a condition on the rows found, in a LEFT JOIN, where a hint wants it asked
SELECT /*+ LOOKUP('table'='c') */ o.x FROM orders o LEFT JOIN customers c ON c.id = (SELECT max(k) FROM other) AND c.country <> 'DE'
-- refused:
line 1, column 116: The lookup join with c cannot run: its ON condition has a subquery. Compute it in a subquery on the left first.
SELECT /*+ LOOKUP('table'='c') */ o.x FROM orders o LEFT JOIN customers c ON c.id = (SELECT max(k) FROM other) AND c.country <> 'DE'
                                                                                                                   ^^^^^^^^^^^^^^^^^

-- case: a key that a query gives, in a LEFT JOIN of pipes, which a lambda pads
FROM orders o |> LEFT JOIN customers c ON c.id = (SELECT max(k) FROM other) |> SELECT o.x
-- becomes:
FROM orders o |> LEFT JOIN scan_customers__id AS c ON c.id = (SELECT max(k) FROM other) |> SELECT o.x

-- case: a query among several keys: they travel as one
SELECT o.x FROM orders o LEFT JOIN rates r ON r.currency = o.cur AND r.kind = (SELECT max(kind) FROM other)
-- becomes:
SELECT o.x FROM orders o LATERAL VIEW OUTER inline(ask_rates(named_struct('currency', o.cur, 'kind', (SELECT max(kind) FROM other)))) r

-- case: a query in a condition on the left, beside several keys
SELECT o.x FROM orders o LEFT JOIN rates r ON r.currency = o.cur AND r.kind = o.kind AND o.total > (SELECT avg(total) FROM other)
-- becomes:
SELECT o.x FROM orders o LATERAL VIEW OUTER inline(ask_rates(named_struct('currency', if((o.total > (SELECT avg(total) FROM other)), o.cur, NULL), 'kind', if((o.total > (SELECT avg(total) FROM other)), o.kind, NULL)))) r

-- case: a query in a condition on the left, beside one key
SELECT o.x FROM orders o LEFT JOIN customers c ON c.id = o.k AND o.total > (SELECT avg(total) FROM other)
-- becomes:
SELECT o.x FROM orders o LATERAL VIEW OUTER inline(ask_customers(if((o.total > (SELECT avg(total) FROM other)), o.k, NULL))) c

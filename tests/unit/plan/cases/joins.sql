-- case: an inner join becomes a lateral view
SELECT o.id, c.name FROM orders o JOIN customers c ON o.customer_id = c.id
-- becomes:
SELECT o.id, c.name FROM orders o LATERAL VIEW inline(ask_customers(o.customer_id)) c

-- case: a left join becomes an outer lateral view
SELECT o.id, c.name FROM orders o LEFT JOIN customers c ON o.customer_id = c.id
-- becomes:
SELECT o.id, c.name FROM orders o LATERAL VIEW OUTER inline(ask_customers(o.customer_id)) c

-- case: LEFT OUTER and INNER are spelled out
SELECT a.name, b.name FROM orders o LEFT OUTER JOIN customers a ON o.k = a.id INNER JOIN customers b ON o.j = b.id
-- becomes:
SELECT a.name, b.name FROM orders o LATERAL VIEW OUTER inline(ask_customers(o.k)) a LATERAL VIEW inline(ask_customers(o.j)) b

-- case: without an alias the table's name stays its name
SELECT customers.name FROM orders JOIN customers ON orders.k = customers.id
-- becomes:
SELECT customers.name FROM orders LATERAL VIEW inline(ask_customers(orders.k)) customers

-- case: the join may be written in any case, and AS may stand
select C.NAME from orders as O left join Customers as C on O.k = C.ID
-- becomes:
select C.NAME from orders as O LATERAL VIEW OUTER inline(ask_customers(O.k)) C

-- case: three in a row, the later ones keyed by earlier ones
SELECT * FROM orders o
JOIN customers a ON o.k = a.id
LEFT JOIN customers b ON b.id = length(a.zip)
LEFT JOIN rates r ON r.currency = b.country
-- becomes:
SELECT * FROM orders o
LATERAL VIEW inline(ask_customers(o.k)) a
LATERAL VIEW OUTER inline(ask_customers(length(a.zip))) b
LATERAL VIEW OUTER inline(ask_rates(b.country)) r

-- case: the same table twice under two aliases
SELECT a.name, b.zip FROM orders o JOIN customers a ON o.x = a.id JOIN customers b ON o.y = b.id
-- becomes:
SELECT a.name, b.zip FROM orders o LATERAL VIEW inline(ask_customers(o.x)) a LATERAL VIEW inline(ask_customers(o.y)) b

-- case: ordinary joins may come before
SELECT c.name FROM orders o FULL JOIN items i ON o.id = i.order_id, regions r LEFT JOIN customers c ON i.k = c.id
-- becomes:
SELECT c.name FROM orders o FULL JOIN items i ON o.id = i.order_id, regions r LATERAL VIEW OUTER inline(ask_customers(i.k)) c

-- case: the user's own lateral views stay behind
SELECT c.name, x FROM orders o JOIN customers c ON o.k = c.id LATERAL VIEW explode(split(c.zip, '')) t AS x
-- becomes:
SELECT c.name, x FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c LATERAL VIEW explode(split(c.zip, '')) t AS x

-- case: column aliases of the relation are kept
SELECT * FROM orders o JOIN customers c(a, b, d, e, f) ON o.k = a AND c.d = 'x'
-- becomes:
SELECT * FROM orders o LATERAL VIEW inline(filter(ask_customers(o.k), `__lookup_row` -> (`__lookup_row`.`country` = 'x'))) c AS `a`, `b`, `d`, `e`, `f`

-- case: the select may come last
FROM orders o JOIN customers c ON o.k = c.id SELECT c.name
-- becomes:
FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c SELECT c.name

-- case: names in backquotes
SELECT `c d`.`name` FROM `my orders` o JOIN `customers` `c d` ON o.`k k` = `c d`.`id` AND `c d`.country <> o.land
-- becomes:
SELECT `c d`.`name` FROM `my orders` o LATERAL VIEW inline(filter(ask_customers(o.`k k`), `__lookup_row` -> (`__lookup_row`.`country` <> o.land))) `c d`

-- case: comments and line breaks outside the join stay, lines keep their numbers
SELECT c.name -- the name
FROM orders o -- left
LEFT JOIN customers c -- right; with a 'quote
  ON o.k = c.id /* key */
     AND c.zip > 'a' -- rest
WHERE nope = 1
-- becomes:
SELECT c.name -- the name
FROM orders o -- left
LATERAL VIEW OUTER inline(filter(ask_customers(o.k), `__lookup_row` -> (`__lookup_row`.`zip` > 'a'))) c

 -- rest
WHERE nope = 1

-- case: a relation that a SEMI JOIN hides stands behind no lookup
SELECT c.name FROM orders o LEFT SEMI JOIN vips v ON o.k = v.k, zips z, customers c WHERE c.id = o.k AND c.zip = z.zip
-- becomes:
SELECT c.name FROM (SELECT struct(o.*) AS `__lookup_1`, struct(c.*) AS `__lookup_2` FROM orders o LEFT SEMI JOIN vips v ON o.k = v.k LATERAL VIEW inline(ask_customers(o.k)) c) AS `__lookup_3` JOIN LATERAL (SELECT `__lookup_1`.*) AS o JOIN LATERAL (SELECT `__lookup_2`.*) AS c, zips z WHERE c.id = o.k AND c.zip = z.zip

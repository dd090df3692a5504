-- case: a star asks for all columns
SELECT * FROM orders o JOIN weather w ON o.origin = w.origin AND o.hour = w.hour
-- becomes:
SELECT * FROM orders o LATERAL VIEW inline(ask_weather(o.origin, o.hour)) w

-- case: a qualified star too
SELECT o.id, w.* FROM orders o JOIN weather w ON o.origin = w.origin AND o.hour = w.hour
-- becomes:
SELECT o.id, w.* FROM orders o LATERAL VIEW inline(ask_weather(o.origin, o.hour)) w

-- case: nothing named: the key comes back
SELECT count(*) FROM orders o JOIN customers c ON o.k = c.id
-- becomes:
SELECT count(*) FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c

-- case: columns named in other clauses and in subqueries
SELECT o.id FROM orders o JOIN customers c ON o.k = c.id WHERE EXISTS (SELECT 1 FROM zips z WHERE z.zip = c.zip) GROUP BY o.id, c.country ORDER BY max(name)
-- becomes:
SELECT o.id FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c WHERE EXISTS (SELECT 1 FROM zips z WHERE z.zip = c.zip) GROUP BY o.id, c.country ORDER BY max(name)

-- case: a column that IDENTIFIER names
SELECT IDENTIFIER('w.wind') FROM orders o JOIN weather w ON o.origin = w.origin AND o.hour = w.hour
-- becomes:
SELECT IDENTIFIER('w.wind') FROM orders o LATERAL VIEW inline(ask_weather(o.origin, o.hour)) w

-- case: all columns are read where some are used that the text does not name
SELECT IDENTIFIER('c.zip') FROM customers c
-- becomes:
SELECT IDENTIFIER('c.zip') FROM scan_customers__id_name_country_zip_address AS c

-- case: all columns are read where no SELECT says which
FROM customers c |> WHERE c.zip > 1
-- becomes:
FROM scan_customers__id_name_country_zip_address AS c |> WHERE c.zip > 1

-- case: all columns are read under NATURAL
SELECT name FROM orders o NATURAL JOIN customers c
-- becomes:
SELECT name FROM orders o NATURAL JOIN scan_customers__id_name_country_zip_address AS c

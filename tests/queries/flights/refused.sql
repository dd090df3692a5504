-- lookup: planes, airlines, edges

-- case: RIGHT JOIN with the lookup table on the right, where a hint wants it asked
SELECT /*+ LOOKUP('table'='p') */ f.flight, p.seats FROM flights f RIGHT JOIN planes p ON p.tailnum = f.tailnum
-- refused:
The lookup join with p cannot run: a RIGHT JOIN needs every row of the lookup table; write LEFT JOIN with the sides swapped.
-- instead:
SELECT f.flight, p.seats FROM (SELECT * FROM planes) p LEFT JOIN flights f ON p.tailnum = f.tailnum

-- case: FULL JOIN, where a hint wants it asked
SELECT /*+ LOOKUP('table'='p') */ f.flight, p.seats FROM flights f FULL OUTER JOIN planes p ON p.tailnum = f.tailnum
-- refused:
The lookup join with p cannot run: a FULL JOIN needs every row of the lookup table; write LEFT JOIN.
-- instead:
SELECT f.flight, p.seats FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum
UNION ALL SELECT NULL, p.seats FROM (SELECT * FROM planes) p LEFT ANTI JOIN flights f ON p.tailnum = f.tailnum

-- case: CROSS JOIN without a key, where a hint wants it asked
SELECT /*+ LOOKUP('table'='l') */ f.flight, l.name FROM flights f CROSS JOIN airlines l
-- refused:
The lookup join with l cannot run: a CROSS JOIN gives no key to ask for; write JOIN ... ON with an equality.
-- instead:
WITH all_airlines AS (SELECT * FROM airlines) SELECT f.flight, l.name FROM flights f CROSS JOIN all_airlines l

-- case: a comma without a key, where a hint wants it asked
SELECT /*+ LOOKUP('table'='l') */ f.flight, l.name FROM flights f, airlines l
-- refused:
The lookup join with l cannot run: no equality in WHERE gives its key, so nothing says which rows to ask for.
-- instead:
WITH all_airlines AS (SELECT * FROM airlines) SELECT f.flight, l.name FROM flights f, all_airlines l

-- case: no condition, where a hint wants it asked
SELECT /*+ LOOKUP('table'='l') */ f.flight, l.name FROM flights f JOIN airlines l
-- refused:
The lookup join with l cannot run: it has no ON condition, so nothing says which rows to ask for.
-- instead:
WITH all_airlines AS (SELECT * FROM airlines) SELECT f.flight, l.name FROM flights f JOIN all_airlines l

-- case: no equality in the condition, where a hint wants it asked
SELECT /*+ LOOKUP('table'='p') */ f.flight, p.seats FROM flights f JOIN planes p ON p.tailnum > f.tailnum
-- refused:
The lookup join with p has no key: no equality between an expression of the left side and a column that can be asked by. Columns that can be asked by: tailnum, year, type, manufacturer, model, engines, seats, speed, engine.

-- case: a function around the column of the only key, where a hint wants it asked
SELECT /*+ LOOKUP('table'='p') */ f.flight, p.seats FROM flights f LEFT JOIN planes p ON upper(p.tailnum) = f.tailnum
-- refused:
The lookup join with p has no key: no equality between an expression of the left side and a column that can be asked by. Columns that can be asked by: tailnum, year, type, manufacturer, model, engines, seats, speed, engine.

-- case: an OR of different keys, where a hint wants it asked
SELECT /*+ LOOKUP('table'='l') */ f.flight, l.name FROM flights f JOIN airlines l ON l.carrier = f.carrier OR l.carrier = left(f.dest, 2)
-- refused:
The lookup join with l has no key: no equality between an expression of the left side and a column that can be asked by. Columns that can be asked by: carrier, name.

-- case: a text asked by numbers, where a hint wants it asked
-- conf: spark.sql.ansi.enabled = false
SELECT /*+ LOOKUP('table'='e') */ v.x, e.word FROM VALUES (2), (3) AS v (x) LEFT JOIN edges e ON e.word = v.x
-- refused:
The lookup join with e cannot run: v.x is INT and e.word is STRING, so one key may equal several values of the column. Write CAST(v.x AS STRING).
-- instead:
SELECT v.x, e.word FROM VALUES (2), (3) AS v (x) LEFT JOIN edges e ON e.word = CAST(v.x AS STRING)

-- case: a key of another type beside one that a query gives, where a hint wants it asked
SELECT v.x FROM VALUES (1), (2), (70000) AS v (x) WHERE v.x IN (SELECT /*+ LOOKUP('table'='e') */ e.small FROM edges e WHERE e.word = (SELECT max(l.carrier) FROM (SELECT 'A' AS carrier) l))
-- refused:
The lookup join with e cannot run: v.x is INT and e.small is SMALLINT, so one key may equal several values of the column. Write CAST(v.x AS SMALLINT).
-- instead:
SELECT v.x FROM VALUES (1), (2), (70000) AS v (x) WHERE try_cast(v.x AS SMALLINT) IN (SELECT e.small FROM edges e WHERE e.word = (SELECT max(l.carrier) FROM (SELECT 'A' AS carrier) l))

-- case: a collation that is not binary on the key, where a hint wants it asked
SELECT /*+ LOOKUP('table'='e') */ v.x, e.id FROM VALUES ('a'), ('b') AS v (x) LEFT JOIN edges e ON e.word = v.x COLLATE UTF8_LCASE
-- refused:
The lookup join with e cannot run: v.x COLLATE UTF8_LCASE is STRING COLLATE UTF8_LCASE and e.word is STRING, so one key may equal several values of the column. Write CAST(v.x COLLATE UTF8_LCASE AS STRING).

-- case: an IN subquery over the dimension in the condition of a LEFT JOIN, where a hint wants it asked
SELECT /*+ LOOKUP('table'='p') */ f.flight, p.seats FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum AND p.year IN (SELECT 2000 + day FROM flights)
-- refused:
The lookup join with p cannot run: its ON condition has a subquery. Compute it in a subquery on the left first.
-- instead:
SELECT f.flight, p.seats FROM flights f LEFT JOIN (SELECT d.tailnum, p.seats FROM (SELECT DISTINCT tailnum FROM flights) d JOIN planes p ON p.tailnum = d.tailnum WHERE p.year IN (SELECT 2000 + day FROM flights)) p ON p.tailnum = f.tailnum

-- case: an uncorrelated scalar subquery in the condition of a LEFT JOIN, where a hint wants it asked
SELECT /*+ LOOKUP('table'='p') */ f.flight, p.seats FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum AND p.seats > (SELECT avg(distance) / 10 FROM flights)
-- refused:
The lookup join with p cannot run: its ON condition has a subquery. Compute it in a subquery on the left first.
-- instead:
SELECT f.flight, p.seats FROM (SELECT *, (SELECT avg(distance) / 10 FROM flights) AS least FROM flights) f LEFT JOIN planes p ON p.tailnum = f.tailnum AND p.seats > f.least

-- case: an IN subquery over the left in the condition of a LEFT JOIN, where a hint wants it asked
SELECT /*+ LOOKUP('table'='p') */ f.flight, p.seats FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum AND f.dest IN (SELECT faa FROM airports WHERE alt > 1000)
-- refused:
The lookup join with p cannot run: its ON condition has a subquery. Compute it in a subquery on the left first.
-- instead:
SELECT f.flight, p.seats FROM (SELECT *, EXISTS (SELECT 1 FROM airports a WHERE a.faa = flights.dest AND alt > 1000) AS is_high FROM flights) f LEFT JOIN planes p ON p.tailnum = f.tailnum AND f.is_high

-- case: a RIGHT JOIN with USING before it, and another relation after it, where a hint wants it asked
SELECT /*+ LOOKUP('table'='p') */ f.flight, p.seats, l.name FROM (SELECT DISTINCT origin AS faa FROM flights) o RIGHT JOIN (SELECT *, dest AS faa FROM flights) f USING (faa) JOIN planes p ON p.tailnum = f.tailnum JOIN (SELECT DISTINCT * FROM airlines) l ON l.carrier = f.carrier
-- refused:
The lookup join with p cannot run: a join with USING or NATURAL comes before it, and another relation after it; write ON with the equality, or put the lookup join last.
-- instead:
SELECT f.flight, p.seats, l.name FROM (SELECT DISTINCT origin AS faa FROM flights) o RIGHT JOIN (SELECT *, dest AS faa FROM flights) f ON f.faa = o.faa JOIN planes p ON p.tailnum = f.tailnum JOIN (SELECT DISTINCT * FROM airlines) l ON l.carrier = f.carrier

-- case: USING behind a comma, with a column from before the comma, too, where a hint wants it asked
SELECT /*+ LOOKUP('table'='l') */ f.flight, l.name FROM (SELECT DISTINCT carrier FROM flights) g, flights f JOIN airlines l USING (carrier)
-- refused:
The lookup join with l cannot run: a join with USING or NATURAL follows a comma, where its columns may be those of a relation before the comma; write ON with the equality.
-- instead:
SELECT f.flight, l.name FROM (SELECT DISTINCT carrier FROM flights) g CROSS JOIN flights f JOIN airlines l ON g.carrier = l.carrier

-- case: a sample of the lookup table, where a hint wants it asked
SELECT /*+ LOOKUP('table'='p') */ f.flight, p.seats FROM flights f JOIN planes TABLESAMPLE (2 ROWS) p ON p.tailnum = f.tailnum
-- refused:
Only AS and FOR SYSTEM_TIME AS OF can stand beside the lookup table planes: it is asked by key, not read.

-- case: a fixed time of the past
SELECT f.flight, p.seats FROM flights f JOIN planes FOR SYSTEM_TIME AS OF TIMESTAMP '2013-01-01' AS p ON p.tailnum = f.tailnum
-- refused:
p is asked for a time of its own, but connector 'counting' knows only the present. Write PROCTIME() or current_timestamp(), or leave FOR SYSTEM_TIME AS OF out.

-- case: a persistent view
CREATE VIEW lasting AS SELECT f.flight, p.seats FROM flights f JOIN planes p ON p.tailnum = f.tailnum
-- refused:
A view that outlives the session cannot hold a lookup join: the lookup does not outlive it. Write CREATE TEMPORARY VIEW.

-- case: a hint for a table of another block
SELECT /*+ LOOKUP('table'='p') */ s.seats FROM (SELECT p.seats FROM flights f JOIN planes p ON p.tailnum = f.tailnum) s
-- refused:
LOOKUP names 'p', but no lookup join in this query block has that alias. The block has no lookup join: a lookup table is the right side of a JOIN, created WITH ('connector' = ...).
-- instead:
SELECT s.seats FROM (SELECT /*+ LOOKUP('table'='p') */ p.seats FROM flights f JOIN planes p ON p.tailnum = f.tailnum) s

-- case: a write into the lookup table
INSERT INTO airlines VALUES ('ZZ', 'Nobody')
-- refused:
airlines is a lookup table: it is asked, never written to.

-- case: ON that names a lookup table before a comma, whose key comes from behind it, where a hint wants it asked
SELECT /*+ LOOKUP('table'='l') */ f.flight, l.name, p.seats FROM airlines l, flights f JOIN planes p ON p.tailnum = f.tailnum AND p.seats > length(l.name) JOIN airports a ON a.faa = f.dest WHERE l.carrier = f.carrier
-- refused:
The lookup join with l cannot run: its key comes from joins behind the comma that name it themselves; write CROSS JOIN in place of the comma.
-- instead:
SELECT f.flight, l.name, p.seats FROM airlines l CROSS JOIN flights f JOIN planes p ON p.tailnum = f.tailnum AND p.seats > length(l.name) JOIN airports a ON a.faa = f.dest WHERE l.carrier = f.carrier

-- case: USING behind a comma, and a LATERAL subquery behind it that names what comes before, where a hint wants it asked
SELECT /*+ LOOKUP('table'='l') */ f.flight, l.name, t.h FROM first_day g, first_day f JOIN airlines l USING (carrier) JOIN LATERAL (SELECT g.hour + 1 AS h) t WHERE g.flight = f.flight
-- refused:
The lookup join with l cannot run: a join with USING or NATURAL follows a comma, where its columns may be those of a relation before the comma; write ON with the equality.
-- instead:
SELECT f.flight, l.name, t.h FROM first_day g, first_day f JOIN airlines l ON l.carrier = g.carrier JOIN LATERAL (SELECT g.hour + 1 AS h) t WHERE g.flight = f.flight

-- case: a LATERAL subquery that names a lookup table, joined with what gives its key, where a hint wants it asked
SELECT /*+ LOOKUP('table'='l') */ f.flight, t.c FROM airlines l, first_day f JOIN LATERAL (SELECT l.name || f.dest AS c) t WHERE l.carrier = f.carrier
-- refused:
The lookup join with l cannot run: its key comes from joins behind the comma that name it themselves; write CROSS JOIN in place of the comma.
-- instead:
SELECT f.flight, t.c FROM airlines l CROSS JOIN first_day f JOIN LATERAL (SELECT l.name || f.dest AS c) t WHERE l.carrier = f.carrier

-- case: a column of USING in HAVING over its grouping
SELECT a.carrier, count(*) AS n FROM flights f JOIN airlines a USING (carrier) GROUP BY ROLLUP (a.carrier) HAVING grouping(a.carrier) = 0
-- refused:
The column carrier of USING or NATURAL is not allowed here with the lookup table's alias. Use the alias of the other side, or write ON with the equality in place of USING (carrier).
-- instead:
SELECT f.carrier, count(*) AS n FROM flights f JOIN airlines a USING (carrier) GROUP BY ROLLUP (f.carrier) HAVING grouping(f.carrier) = 0

-- case: a written column without a name
CREATE TEMPORARY VIEW unnamed AS SELECT f.flight, upper(a.carrier) FROM flights f JOIN airlines a USING (carrier)
-- refused:
The column upper(carrier) of what is written takes its name from its expression, which is another one inside. Give it a name: upper(carrier) AS x.

-- case: EXISTS in ON that names both sides
SELECT f.flight FROM flights f JOIN planes p ON p.tailnum = f.tailnum AND EXISTS (SELECT 1 FROM airports a WHERE a.faa = f.dest AND a.alt = p.seats)
-- refused:
The lookup join with p cannot run: an IN or EXISTS in its ON condition names both sides, which Spark does not take. Move it to WHERE.

-- case: IN in ON whose left side names both sides
SELECT f.flight FROM flights f JOIN planes p ON p.tailnum = f.tailnum AND f.flight + p.seats IN (SELECT alt FROM airports)
-- refused:
The lookup join with p cannot run: an IN or EXISTS in its ON condition names both sides, which Spark does not take. Move it to WHERE.

-- case: a correlated subquery as the only key, where a hint wants it asked
SELECT /*+ LOOKUP('table'='p') */ f.flight FROM flights f, planes p WHERE p.tailnum = (SELECT max(x.tailnum) FROM first_day x WHERE x.flight = f.flight)
-- refused:
The lookup join with p cannot run: no equality in WHERE gives its key, so nothing says which rows to ask for.

-- lookup: planes, airlines, edges

-- case: RIGHT JOIN with the lookup table on the right
SELECT f.flight, p.seats FROM flights f RIGHT JOIN planes p ON p.tailnum = f.tailnum
-- refused:
?
-- instead:
SELECT f.flight, p.seats FROM (SELECT * FROM planes) p LEFT JOIN flights f ON p.tailnum = f.tailnum

-- case: FULL JOIN
SELECT f.flight, p.seats FROM flights f FULL OUTER JOIN planes p ON p.tailnum = f.tailnum
-- refused:
?
-- instead:
SELECT f.flight, p.seats FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum
UNION ALL SELECT NULL, p.seats FROM (SELECT * FROM planes) p LEFT ANTI JOIN flights f ON p.tailnum = f.tailnum

-- case: CROSS JOIN without a key
SELECT f.flight, l.name FROM flights f CROSS JOIN airlines l
-- refused:
?
-- instead:
WITH all_airlines AS (SELECT * FROM airlines) SELECT f.flight, l.name FROM flights f CROSS JOIN all_airlines l

-- case: a comma without a key
SELECT f.flight, l.name FROM flights f, airlines l
-- refused:
?
-- instead:
WITH all_airlines AS (SELECT * FROM airlines) SELECT f.flight, l.name FROM flights f, all_airlines l

-- case: no condition
SELECT f.flight, l.name FROM flights f JOIN airlines l
-- refused:
?
-- instead:
WITH all_airlines AS (SELECT * FROM airlines) SELECT f.flight, l.name FROM flights f JOIN all_airlines l

-- case: no equality in the condition
SELECT f.flight, p.seats FROM flights f JOIN planes p ON p.tailnum > f.tailnum
-- refused:
?

-- case: a NULL-safe equality as the only key
SELECT f.flight, p.seats FROM flights f LEFT JOIN planes p ON p.tailnum <=> f.tailnum
-- refused:
?

-- case: a function around the column of the only key
SELECT f.flight, p.seats FROM flights f LEFT JOIN planes p ON upper(p.tailnum) = f.tailnum
-- refused:
?

-- case: an OR of different keys
SELECT f.flight, l.name FROM flights f JOIN airlines l ON l.carrier = f.carrier OR l.carrier = left(f.dest, 2)
-- refused:
?

-- case: a text asked by numbers
-- conf: spark.sql.ansi.enabled = false
SELECT v.x, e.word FROM VALUES (2), (3) AS v (x) LEFT JOIN edges e ON e.word = v.x
-- refused:
?
-- instead:
SELECT v.x, e.word FROM VALUES (2), (3) AS v (x) LEFT JOIN edges e ON e.word = CAST(v.x AS STRING)

-- case: a collation that is not binary on the key
SELECT v.x, e.id FROM VALUES ('a'), ('b') AS v (x) LEFT JOIN edges e ON e.word = v.x COLLATE UTF8_LCASE
-- refused:
?

-- case: an IN subquery over the dimension in the condition of a LEFT JOIN
SELECT f.flight, p.seats FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum AND p.year IN (SELECT 2000 + day FROM flights)
-- refused:
?
-- instead:
SELECT f.flight, p.seats FROM flights f LEFT JOIN (SELECT d.tailnum, p.seats FROM (SELECT DISTINCT tailnum FROM flights) d JOIN planes p ON p.tailnum = d.tailnum WHERE p.year IN (SELECT 2000 + day FROM flights)) p ON p.tailnum = f.tailnum

-- case: a sample of the lookup table
SELECT f.flight, p.seats FROM flights f JOIN planes TABLESAMPLE (2 ROWS) p ON p.tailnum = f.tailnum
-- refused:
?

-- case: a fixed time of the past
SELECT f.flight, p.seats FROM flights f JOIN planes FOR SYSTEM_TIME AS OF TIMESTAMP '2013-01-01' AS p ON p.tailnum = f.tailnum
-- refused:
?

-- case: the wrong number of column aliases
SELECT f.flight FROM flights f JOIN airlines l (c) ON l.c = f.carrier
-- refused:
?

-- case: a persistent view
CREATE VIEW lasting AS SELECT f.flight, p.seats FROM flights f JOIN planes p ON p.tailnum = f.tailnum
-- refused:
?

-- case: a hint for a table of another block
SELECT /*+ LOOKUP('table'='p') */ s.seats FROM (SELECT p.seats FROM flights f JOIN planes p ON p.tailnum = f.tailnum) s
-- refused:
?
-- instead:
SELECT s.seats FROM (SELECT /*+ LOOKUP('table'='p') */ p.seats FROM flights f JOIN planes p ON p.tailnum = f.tailnum) s

-- case: a write into the lookup table
INSERT INTO airlines VALUES ('ZZ', 'Nobody')
-- refused:
?

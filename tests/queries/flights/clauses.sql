-- lookup: planes, airlines

-- case: lateral column aliases
SELECT p.seats * 2 AS pairs, pairs + 1 AS more, more * f.hour AS most FROM flights f JOIN planes p ON p.tailnum = f.tailnum

-- case: lateral column aliases with the lookup in the middle
SELECT p.seats * 2 AS pairs, pairs + a.alt AS more FROM flights f JOIN planes p ON p.tailnum = f.tailnum JOIN airports a ON a.faa = f.dest

-- case: EXCEPT in the select list
SELECT * EXCEPT (p.year, p.tailnum, minute) FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum WHERE f.hour = 6

-- case: EXCEPT with the lookup in the middle
SELECT * EXCEPT (p.tailnum, a.name) FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum JOIN airports a ON a.faa = f.dest WHERE f.hour = 6

-- case: stars of each relation with the lookup in the middle
SELECT a.*, p.*, f.hour FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum JOIN airports a ON a.faa = f.dest WHERE f.hour = 6

-- case: a star in a struct
SELECT struct(p.*) AS plane, f.flight FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum WHERE f.hour = 6

-- case: a star in a struct with the lookup in the middle
SELECT struct(p.*) AS plane, struct(a.*) AS airport FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum JOIN airports a ON a.faa = f.dest WHERE f.hour = 6

-- case: names of columns without an alias
SELECT max(p.seats), count(a.faa), min(f.hour) + 1, first(struct(p.model, a.alt)).model IS NULL FROM flights f JOIN planes p ON p.tailnum = f.tailnum JOIN airports a ON a.faa = f.dest

-- case: QUALIFY
SELECT f.flight, p.model, p.seats FROM flights f JOIN planes p ON p.tailnum = f.tailnum QUALIFY row_number() OVER (PARTITION BY p.model ORDER BY f.flight, f.time_hour, f.tailnum) = 1

-- case: QUALIFY with the lookup in the middle
SELECT f.flight, p.model, a.name FROM flights f JOIN planes p ON p.tailnum = f.tailnum JOIN airports a ON a.faa = f.dest QUALIFY rank() OVER (PARTITION BY p.model ORDER BY a.name) = 1

-- case: a window
SELECT f.flight, p.model, sum(p.seats) OVER (PARTITION BY p.model ORDER BY f.time_hour, f.flight, f.tailnum) AS s FROM flights f JOIN planes p ON p.tailnum = f.tailnum

-- case: a named window
SELECT f.flight, rank() OVER w AS r, count(*) OVER w AS n FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum WINDOW w AS (PARTITION BY p.engine ORDER BY p.seats, f.flight, f.time_hour, f.tailnum)

-- case: GROUP BY ALL
SELECT p.model, f.carrier, count(*) AS n FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum GROUP BY ALL

-- case: GROUP BY an expression and HAVING
SELECT p.seats DIV 50 AS size, count(*) AS n, sum(p.engines) AS engines FROM flights f JOIN planes p ON p.tailnum = f.tailnum GROUP BY p.seats DIV 50 HAVING max(p.seats) > 100

-- case: CUBE, ROLLUP and GROUPING SETS
SELECT p.engine, f.origin, count(*) AS n, grouping_id() AS g FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum GROUP BY CUBE (p.engine, f.origin)
UNION ALL SELECT p.engine, f.origin, count(*), 9 FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum GROUP BY GROUPING SETS ((p.engine), (f.origin, p.engine))

-- case: an aggregate with FILTER and DISTINCT
SELECT count(DISTINCT p.model) AS models, count(*) FILTER (WHERE p.seats > 100) AS big, count(DISTINCT f.dest) FILTER (WHERE p.engines = 2) AS two FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum

-- case: DISTINCT with ORDER BY
-- ordered
SELECT DISTINCT p.model, a.tzone FROM flights f JOIN planes p ON p.tailnum = f.tailnum JOIN airports a ON a.faa = f.dest ORDER BY p.model, a.tzone

-- case: ORDER BY a column that is not selected
-- ordered
SELECT f.flight FROM flights f JOIN planes p ON p.tailnum = f.tailnum JOIN airports a ON a.faa = f.dest ORDER BY p.seats DESC, a.name, f.flight, f.time_hour

-- case: ORDER BY ALL, LIMIT and OFFSET
-- ordered
SELECT f.flight, p.seats, f.time_hour FROM flights f JOIN planes p ON p.tailnum = f.tailnum ORDER BY ALL LIMIT 20 OFFSET 5

-- case: SORT BY and DISTRIBUTE BY
SELECT f.flight, p.seats FROM flights f JOIN planes p ON p.tailnum = f.tailnum DISTRIBUTE BY p.model SORT BY p.seats

-- case: CLUSTER BY with the lookup in the middle
SELECT f.flight, p.seats, a.name FROM flights f JOIN planes p ON p.tailnum = f.tailnum JOIN airports a ON a.faa = f.dest CLUSTER BY p.model

-- case: a table-valued function on the left
SELECT r.id, l.name FROM range(3) r JOIN airlines l ON l.carrier = element_at(array('UA', 'AA', 'zz'), int(r.id) + 1)

-- case: a table-valued function after it
SELECT f.flight, p.seats, s.col FROM flights f JOIN planes p ON p.tailnum = f.tailnum, LATERAL explode(split(p.engine, '-')) s WHERE f.hour = 5

-- case: VALUES on the left
SELECT v.code, l.name FROM VALUES ('UA'), ('AA'), (NULL), ('nope') AS v (code) LEFT JOIN airlines l ON l.carrier = v.code

-- case: VALUES in the middle of commas
SELECT f.flight, v.code, l.name FROM flights f, VALUES ('UA'), ('AA') AS v (code), airlines l WHERE l.carrier = v.code AND f.hour = 5

-- case: a sample of the left table
SELECT f.flight, p.seats FROM flights TABLESAMPLE (50 PERCENT) REPEATABLE (7) f JOIN planes p ON p.tailnum = f.tailnum

-- case: a sample of a subquery with the lookup
SELECT s.flight, s.seats FROM (SELECT f.flight, p.seats FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum) TABLESAMPLE (100 PERCENT) s

-- case: a PIVOT over the lookup join
SELECT * FROM (SELECT f.origin, p.engine, f.distance FROM flights f JOIN planes p ON p.tailnum = f.tailnum) PIVOT (sum(distance) FOR engine IN ('Turbo-fan' AS fan, 'Turbo-jet' AS jet))

-- case: a PIVOT right behind the lookup join
SELECT fan, jet FROM (SELECT origin, tailnum FROM flights) f JOIN (SELECT tailnum, engine FROM planes) p ON p.tailnum = f.tailnum PIVOT (count(1) FOR engine IN ('Turbo-fan' AS fan, 'Turbo-jet' AS jet))

-- case: an UNPIVOT over a lookup join
SELECT flight, what, n FROM (SELECT f.flight, p.seats, p.engines FROM flights f JOIN planes p ON p.tailnum = f.tailnum WHERE f.hour = 5) UNPIVOT (n FOR what IN (seats, engines))

-- case: a lookup over an UNPIVOT
-- lookup: airports
SELECT u.flight, u.what, a.name FROM (SELECT flight, origin, dest FROM flights WHERE hour = 5) UNPIVOT (code FOR what IN (origin, dest)) u JOIN airports a ON a.faa = u.code JOIN airlines l ON left(l.name, 1) = left(u.code, 1)

-- case: hints of Spark beside ours
SELECT /*+ LOOKUP('table'='p', 'async'='false') */ /*+ BROADCAST(a) */ f.flight, p.seats, a.name FROM flights f JOIN planes p ON p.tailnum = f.tailnum JOIN airports a ON a.faa = f.dest

-- case: two of our hints for two tables
SELECT /*+ LOOKUP('table'='p', 'batch-size'='10') */ /*+ LOOKUP('table'='l', 'async'='false') */ f.flight, p.seats, l.name FROM flights f JOIN planes p ON p.tailnum = f.tailnum LEFT JOIN airlines l ON l.carrier = f.carrier

-- case: a time clause in the middle
SELECT f.flight, p.seats, a.name FROM flights f JOIN planes FOR SYSTEM_TIME AS OF f.time_hour AS p ON p.tailnum = f.tailnum JOIN airports a ON a.faa = f.dest

-- case: a time clause on the first of two lookups
SELECT f.flight, p.seats, l.name FROM flights f LEFT JOIN planes FOR SYSTEM_TIME AS OF PROCTIME() p ON p.tailnum = f.tailnum JOIN airlines FOR SYSTEM_TIME AS OF f.time_hour l ON l.carrier = f.carrier

-- case: SELECT TRANSFORM is not in the way of another statement
SELECT transform(split(p.type, ' '), x -> upper(x)) AS words FROM flights f JOIN planes p ON p.tailnum = f.tailnum WHERE f.hour = 5

-- case: CASE, CAST, :: and intervals around what is looked up
SELECT CASE p.engines WHEN 2 THEN 'two' ELSE 'other' END AS n, p.seats::STRING AS s, CAST(p.year AS SMALLINT) AS y, f.time_hour + INTERVAL '1' HOUR AS t FROM flights f JOIN planes p ON p.tailnum = f.tailnum

-- case: a semi-structured path beside the lookup
SELECT parse_json('{"a": {"b": 7}}'):a.b::INT AS b, p.seats FROM flights f JOIN planes p ON p.tailnum = f.tailnum WHERE f.hour = 5

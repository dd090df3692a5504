-- lookup: planes, airlines, odd names

-- case: a column named by a reserved word
SELECT f.flight, o.`select`, o.`a.b` FROM flights f JOIN `odd names` o ON o.`select` = f.carrier

-- case: a column with a dot in its name, in a condition
SELECT f.flight, `a.b` FROM flights f LEFT JOIN `odd names` o ON o.`select` = f.carrier AND o.`a.b` LIKE '%Air%'

-- case: quoted names with the lookup in the middle
SELECT `f x`.flight, o.`a.b`, `a 1`.name FROM flights AS `f x` JOIN `odd names` AS o ON o.`select` = `f x`.`carrier` JOIN airports `a 1` ON `a 1`.faa = `f x`.dest

-- case: an alias with a quote and a dot
SELECT `it``s.me`.name FROM flights f JOIN airlines AS `it``s.me` ON `it``s.me`.carrier = f.carrier JOIN airports a ON a.faa = f.dest

-- case: unicode names
SELECT `flüge`.flight, `größe`.seats AS `Größe` FROM flights `flüge` JOIN planes `größe` ON `größe`.tailnum = `flüge`.tailnum JOIN airports a ON a.faa = `flüge`.dest

-- case: names in another case
SELECT F.FLIGHT, P.Seats FROM FLIGHTS f JOIN Planes p ON P.TAILNUM = F.TailNum JOIN airports a ON A.FAA = f.Dest WHERE p.SEATS > 100

-- case: names in another case with case-sensitive analysis
-- conf: spark.sql.caseSensitive = true
SELECT f.flight, p.seats FROM flights f JOIN planes p ON p.tailnum = f.tailnum JOIN airports a ON a.faa = f.dest

-- case: a column in another case with case-sensitive analysis
-- conf: spark.sql.caseSensitive = true
SELECT f.flight, p.Seats FROM flights f JOIN planes p ON p.tailnum = f.tailnum
-- fails: UNRESOLVED_COLUMN.WITH_SUGGESTION

-- case: without aliases
SELECT flights.flight, planes.seats FROM flights JOIN planes ON flights.tailnum = planes.tailnum

-- case: without aliases, the lookup in the middle
SELECT flights.flight, planes.seats, airports.name FROM flights JOIN planes ON flights.tailnum = planes.tailnum JOIN airports ON faa = dest

-- case: unqualified columns
SELECT flight, seats, model FROM flights f JOIN planes p ON f.tailnum = p.tailnum AND seats > 100 WHERE hour < 9

-- case: unqualified columns, the lookup in the middle
SELECT flight, seats, alt FROM flights f JOIN planes p ON f.tailnum = p.tailnum JOIN airports a ON dest = faa WHERE engines = 2 ORDER BY seats

-- case: an unqualified key
SELECT flight, l.name FROM (SELECT flight, carrier AS code FROM flights) JOIN airlines l ON code = carrier

-- case: a mix of qualified and unqualified
SELECT f.flight, seats, p.model FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum GROUP BY flight, p.seats, model

-- case: an ambiguous column
SELECT tailnum FROM flights f JOIN planes p ON p.tailnum = f.tailnum
-- fails: AMBIGUOUS_REFERENCE

-- case: an ambiguous column, the lookup in the middle
SELECT year FROM flights f JOIN planes p ON p.tailnum = f.tailnum JOIN airports a ON a.faa = f.dest
-- fails: AMBIGUOUS_REFERENCE

-- case: an unknown column
SELECT p.wings FROM flights f JOIN planes p ON p.tailnum = f.tailnum
-- fails: UNRESOLVED_COLUMN.WITH_SUGGESTION

-- case: an unknown column in ON
SELECT p.seats FROM flights f JOIN planes p ON p.tailnum = f.tail
-- fails: UNRESOLVED_COLUMN.WITH_SUGGESTION

-- case: an unknown table beside the lookup
SELECT p.seats FROM nowhere f JOIN planes p ON p.tailnum = f.tailnum
-- fails: TABLE_OR_VIEW_NOT_FOUND

-- case: an aggregate where none can be
SELECT f.flight, max(p.seats) FROM flights f JOIN planes p ON p.tailnum = f.tailnum
-- fails: MISSING_GROUP_BY

-- case: words that Spark cannot parse
SELECT f.flight FROM flights f JOIN planes p ON p.tailnum = f.tailnum WHERE GROUP BY 1 HAVING HAVING
-- fails: PARSE_SYNTAX_ERROR

-- case: the same alias in two blocks
SELECT p.flight, p.seats FROM (SELECT p.flight, q.seats FROM flights p JOIN planes q ON q.tailnum = p.tailnum) p WHERE p.seats > 100

-- case: the same alias in an inner and an outer block, both lookups
SELECT p.seats, x.n FROM (SELECT p.carrier AS c, count(*) AS n, max(f.tailnum) AS t FROM flights f JOIN airlines p ON p.carrier = f.carrier GROUP BY p.carrier) x JOIN planes p ON p.tailnum = x.t

-- case: an alias that hides an ordinary table
SELECT airports.flight, p.seats FROM flights airports JOIN planes p ON p.tailnum = airports.tailnum

-- case: an alias that hides another lookup table
SELECT airlines.seats, planes.flight FROM flights planes JOIN planes airlines ON airlines.tailnum = planes.tailnum

-- case: an ordinary table under the lookup table's name
SELECT planes.flight, l.name FROM flights planes JOIN airlines l ON l.carrier = planes.carrier JOIN airports a ON a.faa = planes.dest

-- case: a column named like a relation
SELECT p.seats, f.p, f.l FROM (SELECT tailnum, hour AS p, carrier AS l FROM flights) f JOIN planes p ON p.tailnum = f.tailnum

-- case: a column named like a relation, the lookup in the middle
SELECT p.seats, f.p, a.f FROM (SELECT tailnum, dest, hour AS p FROM flights) f JOIN planes p ON p.tailnum = f.tailnum JOIN (SELECT faa, alt AS f FROM airports) a ON a.faa = f.dest

-- case: a struct column named like the dimension's alias
SELECT f.flight, p.seats FROM (SELECT flight, tailnum, named_struct('seats', 'no') AS p FROM flights) f JOIN planes p ON p.tailnum = f.tailnum

-- case: columns of the same name on every side
SELECT f.year, p.year, count(*) AS n FROM flights f JOIN planes p ON p.tailnum = f.tailnum JOIN (SELECT DISTINCT year FROM flights) y ON y.year = f.year GROUP BY f.year, p.year

-- case: a condition that names a column of both sides
SELECT f.flight FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum AND p.year < f.year - 20

-- case: column aliases of the dimension
SELECT c, n, f.flight FROM flights f JOIN airlines AS l (c, n) ON c = f.carrier

-- case: column aliases of the dimension, the lookup in the middle
SELECT l.c, n, f.flight, a.name FROM flights f JOIN airlines AS l (c, n) ON l.c = f.carrier JOIN airports a ON a.faa = f.dest

-- case: words as names
SELECT comment.flight, end.seats, first.name FROM flights comment JOIN planes end ON comment.tailnum = end.tailnum JOIN airports first ON first.faa = comment.dest

-- case: generated names of ours used by the user
SELECT __o.flight, __p.seats, `__lookup_row`.name FROM flights __o JOIN planes __p ON __p.tailnum = __o.tailnum JOIN airports `__lookup_row` ON `__lookup_row`.faa = __o.dest

-- case: a schema in front of an ordinary table
DROP TABLE IF EXISTS default.stored;
CREATE TABLE default.stored USING parquet AS SELECT * FROM flights WHERE hour = 6;
SELECT stored.flight, p.seats, a.name FROM default.stored JOIN planes p ON p.tailnum = default.stored.tailnum JOIN airports a ON a.faa = stored.dest

-- case: the lookup table's name as a text, a column and a function's argument
SELECT 'planes' AS planes, struct(p.seats AS planes).planes AS x FROM flights f JOIN planes p ON p.tailnum = f.tailnum

-- case: no blanks at all
SELECT(f.flight),p.seats FROM(flights)f JOIN(planes)p ON(p.tailnum=f.tailnum)JOIN(airports)a ON(a.faa=f.dest)

-- case: line breaks, tabs and a semicolon
select
	f.flight
,	p.seats
from
	flights	f
left
join
	planes
	as	p
on
	p.tailnum
	=
	f.tailnum
;

-- case: the wrong number of column aliases
SELECT f.flight FROM flights f JOIN airlines l (c) ON l.c = f.carrier
-- fails: ASSIGNMENT_ARITY_MISMATCH

-- case: NATURAL JOIN by a column that both aliases rename
SELECT * FROM (SELECT tailnum, flight FROM flights) f(tail, number) NATURAL JOIN (SELECT faa FROM airports LIMIT 1) x
NATURAL LEFT JOIN planes p(tail, made, kind, maker, model, engines, seats, speed, engine)

-- case: the stars of a NATURAL JOIN by a column that both aliases rename
SELECT p.*, tail, f.* FROM (SELECT flight, tailnum FROM flights) f(number, tail)
NATURAL LEFT JOIN planes p(tail, made, kind, maker, model, engines, seats, speed, engine)

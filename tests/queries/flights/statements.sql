-- lookup: planes, airlines

-- case: a temporary view
CREATE OR REPLACE TEMPORARY VIEW seats_of AS SELECT /*+ LOOKUP('table'='p') */ f.flight, f.carrier, p.seats FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum;
SELECT carrier, sum(seats) AS seats FROM seats_of GROUP BY carrier

-- case: a view over a view, and a lookup over that
CREATE OR REPLACE TEMPORARY VIEW inner_view AS SELECT f.*, p.seats FROM flights f JOIN planes p ON p.tailnum = f.tailnum;
CREATE OR REPLACE TEMPORARY VIEW outer_view (flight, carrier, seats) AS SELECT flight, carrier, seats FROM inner_view WHERE hour < 10;
SELECT v.*, l.name FROM outer_view v JOIN airlines l ON l.carrier = v.carrier

-- case: a view whose lookup is in the middle
CREATE OR REPLACE TEMPORARY VIEW middle AS SELECT * EXCEPT (p.year, p.tailnum, a.name) FROM flights f JOIN planes p ON p.tailnum = f.tailnum JOIN airports a ON a.faa = f.dest;
SELECT seats, alt, flight FROM middle

-- case: CREATE TABLE AS SELECT
DROP TABLE IF EXISTS made;
CREATE TABLE made USING parquet AS SELECT f.flight, p.seats, a.name FROM flights f JOIN planes p ON p.tailnum = f.tailnum JOIN airports a ON a.faa = f.dest;
CREATE OR REPLACE TEMPORARY VIEW kept AS SELECT * FROM made;
SELECT * FROM kept

-- case: INSERT
DROP TABLE IF EXISTS filled;
CREATE TABLE filled (flight INT, model STRING) USING parquet;
INSERT INTO filled SELECT f.flight, p.model FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum;
INSERT INTO filled BY NAME SELECT p.model, f.flight FROM flights f, planes p WHERE p.tailnum = f.tailnum AND f.hour = 5;
INSERT INTO filled (model, flight) WITH q AS (SELECT l.name, f.flight FROM flights f JOIN airlines l USING (carrier)) SELECT * FROM q;
SELECT * FROM filled

-- case: INSERT OVERWRITE
DROP TABLE IF EXISTS written;
CREATE TABLE written (flight INT, model STRING) USING parquet;
INSERT OVERWRITE TABLE written SELECT f.flight, p.model FROM flights f JOIN planes p ON p.tailnum = f.tailnum ORDER BY p.model;
SELECT * FROM written

-- case: TABLE in place of each query that is written
CREATE OR REPLACE TEMPORARY VIEW all_airlines AS TABLE airlines;
DROP TABLE IF EXISTS copied;
CREATE TABLE copied USING parquet AS TABLE airlines;
INSERT OVERWRITE TABLE copied TABLE airlines;
INSERT INTO copied (TABLE airlines);
INSERT INTO TABLE copied (name, carrier) TABLE all_airlines UNION TABLE airlines;
INSERT INTO copied BY NAME TABLE airlines ORDER BY name LIMIT 3;
WITH q AS (TABLE airlines) INSERT INTO TABLE copied TABLE q;
CREATE OR REPLACE TEMPORARY VIEW copies AS TABLE copied;
TABLE copies

-- case: an insert of two branches
DROP TABLE IF EXISTS early;
DROP TABLE IF EXISTS late;
CREATE TABLE early (flight INT, model STRING) USING parquet;
CREATE TABLE late (flight INT, model STRING) USING parquet;
FROM flights f JOIN planes p ON p.tailnum = f.tailnum
INSERT INTO early SELECT f.flight, p.model WHERE f.hour < 12 INSERT INTO late SELECT f.flight, p.model WHERE f.hour >= 12;
SELECT 'early' AS part, * FROM early UNION ALL SELECT 'late', * FROM late

-- case: MERGE USING a lookup join, into a table that cannot take it
DROP TABLE IF EXISTS target;
CREATE TABLE target (flight INT, model STRING) USING parquet;
MERGE INTO target t USING (SELECT f.flight, p.model FROM flights f JOIN planes p ON p.tailnum = f.tailnum) s ON t.flight = s.flight WHEN NOT MATCHED THEN INSERT *
-- fails: UNSUPPORTED_FEATURE.TABLE_OPERATION

-- case: named parameters
-- args: {"hour": 6, "seats": 100, "engine": "Turbo-fan"}
SELECT f.flight, p.seats, :hour AS h FROM flights f JOIN planes p ON p.tailnum = f.tailnum AND p.engine = :engine JOIN airports a ON a.faa = f.dest WHERE f.hour = :hour AND p.seats > :seats

-- case: positional parameters
-- args: [1, 6, 100, "Turbo-fan", 50]
SELECT f.flight, p.seats, ? AS one FROM (SELECT * FROM flights WHERE hour = ?) f JOIN planes p ON p.seats > ? AND p.tailnum = f.tailnum AND p.engine = ? JOIN airports a ON a.faa = f.dest AND a.alt > ?

-- case: positional parameters with the dimension written first
-- args: [100, 6]
SELECT f.flight, p.seats FROM (SELECT * FROM planes WHERE seats > ?) p JOIN flights f ON p.tailnum = f.tailnum WHERE f.hour = ?

-- case: IDENTIFIER for the left table
SELECT f.flight, p.seats FROM IDENTIFIER('flights') f JOIN planes p ON p.tailnum = f.tailnum

-- case: IDENTIFIER for the lookup table
SELECT f.flight, p.seats FROM flights f JOIN IDENTIFIER('planes') p ON p.tailnum = f.tailnum

-- case: IDENTIFIER for a column
SELECT f.flight, IDENTIFIER('p.seats') AS seats FROM flights f JOIN planes p ON p.tailnum = f.tailnum

-- case: IDENTIFIER with a parameter
-- args: {"table": "flights"}
SELECT f.flight, p.seats FROM IDENTIFIER(:table) f LEFT JOIN planes p ON p.tailnum = f.tailnum

-- case: a pipe after the lookup join
FROM flights f JOIN planes p ON p.tailnum = f.tailnum |> WHERE p.seats > 100 |> SELECT f.flight, p.seats

-- case: a lookup join in a pipe
FROM flights f |> WHERE f.hour < 9 |> JOIN planes p ON p.tailnum = f.tailnum |> AGGREGATE count(*) AS n GROUP BY p.model

-- case: a lookup join in the middle of a pipe
FROM flights f |> LEFT JOIN planes p ON p.tailnum = f.tailnum |> JOIN airports a ON a.faa = f.dest |> SELECT f.flight, p.seats, a.name

-- case: two lookups in a pipe, extended between
FROM flights |> JOIN planes p USING (tailnum) |> EXTEND p.seats * 2 AS double |> LEFT JOIN airlines l USING (carrier) |> SELECT flight, double, l.name

-- case: a SEMI JOIN in a pipe
FROM flights f |> LEFT SEMI JOIN planes p ON p.tailnum = f.tailnum |> AGGREGATE count(*) AS n GROUP BY carrier

-- case: a pipe over a lookup query in parentheses
(SELECT f.flight, p.seats FROM flights f JOIN planes p ON p.tailnum = f.tailnum) |> WHERE seats > 200 |> ORDER BY flight, seats |> LIMIT 10

-- case: a block with a variable
BEGIN
  DECLARE least INT DEFAULT 200;
  SELECT f.flight, p.seats FROM flights f JOIN planes p ON p.tailnum = f.tailnum WHERE p.seats > least;
END

-- case: a block with a condition and a loop
BEGIN
  DECLARE n INT DEFAULT 0;
  WHILE n < 2 DO
    SET n = n + 1;
  END WHILE;
  IF n = 2 THEN
    SELECT f.flight, p.seats FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum WHERE f.hour = n + 4;
  ELSE
    SELECT 1 AS flight, 2 AS seats;
  END IF;
END

-- case: a session variable in the condition
DECLARE OR REPLACE VARIABLE least INT DEFAULT 100;
SET VARIABLE least = 150;
SELECT f.flight, p.seats FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum AND p.seats > least

-- case: a variable filled by a lookup
DECLARE OR REPLACE VARIABLE most BIGINT;
SET VARIABLE most = (SELECT max(p.seats) FROM flights f JOIN planes p ON p.tailnum = f.tailnum);
SELECT most

-- case: EXECUTE IMMEDIATE without a lookup beside lookup tables
EXECUTE IMMEDIATE 'SELECT count(*) AS n FROM flights WHERE hour = ?' USING 6

-- case: EXECUTE IMMEDIATE over a lookup, with values
EXECUTE IMMEDIATE 'SELECT f.flight, p.seats FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum AND p.seats > :least WHERE f.hour = :hour' USING 6 AS hour, 100 AS least

-- case: DESCRIBE QUERY over a lookup
DESCRIBE QUERY SELECT f.flight, p.* FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum

-- case: a SQL function that looks up
CREATE OR REPLACE TEMPORARY FUNCTION seats_of(plane STRING) RETURNS INT RETURN (SELECT max(seats) FROM planes WHERE tailnum = plane);
SELECT flight, seats_of(tailnum) AS seats FROM flights WHERE hour = 6

-- case: CACHE TABLE over a lookup
CACHE TABLE cached AS SELECT f.flight, p.seats FROM flights f JOIN planes p ON p.tailnum = f.tailnum WHERE f.hour < 8;
CREATE OR REPLACE TEMPORARY VIEW read_again AS SELECT x.flight, y.seats FROM cached x JOIN cached y ON x.flight = y.flight;
UNCACHE TABLE IF EXISTS cached;
SELECT * FROM read_again

-- case: a comment in every gap
SELECT /* a */ f.flight /* b */, -- c
p.seats /* d */ FROM /* e */ flights /* f */ f /* g */ LEFT /* h */ JOIN /* i */ planes /* j */ p /* k */ ON /* l */ p.tailnum /* m */ = /* n */ f.tailnum /* o */ AND -- p
p.seats /* q */ > 100 /* r */ JOIN /* s */ airports a /* t */ ON a.faa = f.dest /* u */

-- case: texts that look like SQL
SELECT f.flight, ' JOIN planes p ON x -- ' AS a, "it""s" AS b, r'\n' AS c, 'it''s' AS d, '/* LOOKUP( */' AS e, p.seats FROM flights f JOIN planes p ON p.tailnum = f.tailnum AND p.engine <> ')' WHERE f.hour = 5

-- case: TABLE, kept by a pipe
TABLE planes |> WHERE tailnum = 'N14228' |> SELECT tailnum, planes.seats

-- case: TABLE takes no alias
TABLE planes p |> WHERE tailnum = 'N14228'
-- fails: PARSE_SYNTAX_ERROR

-- lookup: edges, planes

-- case: DOUBLE against BIGINT
SELECT v.x, e.id FROM VALUES (1.0D), (1.5D), (2D), (NULL), (DOUBLE('NaN')), (-0.0D), (DOUBLE('Infinity')) AS v (x) LEFT JOIN edges e ON e.id = v.x

-- case: FLOAT against BIGINT
SELECT v.x, e.id FROM VALUES (1.0F), (1.5F), (NULL), (FLOAT('NaN')) AS v (x) LEFT JOIN edges e ON e.id = v.x

-- case: DOUBLE that no BIGINT can be
SELECT v.x, e.id FROM VALUES (1E19D), (-1E30D), (DOUBLE('-Infinity')), (2D) AS v (x) LEFT JOIN edges e ON e.id = v.x

-- case: DOUBLE and FLOAT against DECIMAL
SELECT v.x, a.money, b.money AS other FROM VALUES (0.1D), (1.5D), (-1D), (0.005D), (NULL), (DOUBLE('NaN')) AS v (x) LEFT JOIN edges a ON a.money = v.x LEFT JOIN edges b ON b.money = FLOAT(v.x)

-- case: numbers against FLOAT
SELECT v.x, a.id, b.id AS by_int, c.id AS by_text, d.id AS by_decimal FROM VALUES (0.5D), (1.5D), (2D), (NULL), (DOUBLE('NaN')) AS v (x) LEFT JOIN edges a ON FLOAT(a.real) = v.x AND a.real = v.x LEFT JOIN edges b ON b.real = try_cast(v.x AS INT) LEFT JOIN edges c ON c.real = STRING(v.x) LEFT JOIN edges d ON d.real = try_cast(v.x AS DECIMAL(4, 1))

-- case: FLOAT against BIGINT without ANSI
-- conf: spark.sql.ansi.enabled = false
SELECT v.x, e.id, d.id AS by_text FROM VALUES (1.0F), (1.5F), (300000F), (NULL), (FLOAT('NaN')) AS v (x) LEFT JOIN edges e ON e.id = v.x LEFT JOIN edges d ON d.id = STRING(v.x)

-- case: DECIMAL against BIGINT
SELECT v.x, e.id FROM VALUES (1.00BD), (1.50BD), (2.00BD), (NULL) AS v (x) LEFT JOIN edges e ON e.id = v.x

-- case: a large DECIMAL against BIGINT
SELECT v.x, e.id FROM VALUES (CAST(1 AS DECIMAL(38, 0))), (99999999999999999999999999BD) AS v (x) LEFT JOIN edges e ON e.id = v.x

-- case: INT against BIGINT and SMALLINT
SELECT v.x, e.id, d.small FROM VALUES (1), (2), (70000), (NULL) AS v (x) LEFT JOIN edges e ON e.id = v.x LEFT JOIN edges d ON d.small = v.x

-- case: scales of DECIMAL
SELECT v.x, e.money FROM VALUES (1.500BD), (1.505BD), (0.1BD), (0BD), (-1BD), (NULL) AS v (x) LEFT JOIN edges e ON e.money = v.x

-- case: DOUBLE against DECIMAL
SELECT v.x, e.money FROM VALUES (1.5D), (0.1D), (0.3D - 0.2D), (-0.0D), (DOUBLE('NaN')) AS v (x) LEFT JOIN edges e ON e.money = v.x

-- case: INT against DECIMAL
SELECT v.x, e.money FROM VALUES (0), (-1), (2), (NULL) AS v (x) LEFT JOIN edges e ON e.money = v.x

-- case: FLOAT against DOUBLE
SELECT v.x, e.wide FROM VALUES (0.1F), (1.5F), (FLOAT('NaN')), (-0.0F), (NULL) AS v (x) LEFT JOIN edges e ON e.wide = v.x

-- case: DOUBLE against FLOAT
SELECT v.x, e.real FROM VALUES (0.1D), (1.5D), (DOUBLE('NaN')), (0.0D), (NULL) AS v (x) LEFT JOIN edges e ON e.real = v.x

-- case: NaN and -0.0 as keys
SELECT v.x, e.id FROM VALUES (DOUBLE('NaN')), (-0.0D), (0.0D), (NULL) AS v (x) LEFT JOIN edges e ON e.wide = v.x

-- case: INT against DOUBLE
SELECT v.x, e.wide FROM VALUES (0), (2), (1), (NULL) AS v (x) LEFT JOIN edges e ON e.wide = v.x

-- case: STRING against BIGINT
SELECT v.x, e.id FROM VALUES ('1'), (' 2'), ('03'), (NULL) AS v (x) LEFT JOIN edges e ON e.id = v.x

-- case: STRING against BIGINT without ANSI
-- conf: spark.sql.ansi.enabled = false
SELECT v.x, e.id FROM VALUES ('1'), (' 2'), ('03'), ('4.0'), ('x'), (''), (NULL) AS v (x) LEFT JOIN edges e ON e.id = v.x

-- case: a STRING that is not a number
SELECT v.x, e.id FROM VALUES ('1'), ('x') AS v (x) LEFT JOIN edges e ON e.id = v.x
-- fails: CAST_INVALID_INPUT

-- case: STRING against DOUBLE
SELECT v.x, e.wide FROM VALUES ('0.1'), ('1.50'), ('NaN'), ('-0'), (NULL) AS v (x) LEFT JOIN edges e ON e.wide = v.x

-- case: STRING against DECIMAL
SELECT v.x, e.money FROM VALUES ('0.1'), ('1.50'), ('-1'), (NULL) AS v (x) LEFT JOIN edges e ON e.money = v.x

-- case: STRING against DECIMAL without ANSI
-- conf: spark.sql.ansi.enabled = false
SELECT v.x, e.money FROM VALUES ('0.1'), ('1.50'), ('-1'), ('x'), (NULL) AS v (x) LEFT JOIN edges e ON e.money = v.x

-- case: STRING against TIMESTAMP_NTZ and BINARY
SELECT v.x, e.id, f.id AS by_bytes FROM VALUES ('2013-01-01 05:00:00'), ('2013-01-02'), (NULL) AS v (x) LEFT JOIN edges e ON e.local = v.x LEFT JOIN edges f ON f.raw = substr(v.x, 1, 1)

-- case: STRING against DATE
SELECT v.x, e.day FROM VALUES ('2013-01-01'), ('2013-1-2'), ('1969-12-31'), (NULL) AS v (x) LEFT JOIN edges e ON e.day = v.x

-- case: STRING against TIMESTAMP
SELECT v.x, e.moment FROM VALUES ('2013-01-01 00:00:00'), ('2013-01-02T05:00:00Z'), (NULL) AS v (x) LEFT JOIN edges e ON e.moment = v.x

-- case: STRING against BOOLEAN
SELECT v.x, e.id FROM VALUES ('true'), ('N'), ('0'), (NULL) AS v (x) LEFT JOIN edges e ON e.flag = v.x

-- case: STRING keys with blanks and case
SELECT v.x, e.id FROM VALUES (''), ('a'), ('A'), ('a '), (NULL) AS v (x) LEFT JOIN edges e ON e.word = v.x

-- case: CHAR against STRING
DROP TABLE IF EXISTS padded;
CREATE TABLE padded (c CHAR(4), v VARCHAR(4)) USING parquet;
INSERT INTO padded VALUES ('a', 'a'), ('A', 'A'), ('2', '2'), (NULL, NULL);
SELECT x.c, x.v, e.id AS by_char, d.id AS by_varchar FROM padded x LEFT JOIN edges e ON e.word = x.c LEFT JOIN edges d ON d.word = x.v

-- case: BINARY keys
SELECT v.x, e.id FROM VALUES (X''), (X'61'), (X'00FF'), (X'6120'), (NULL) AS v (x) LEFT JOIN edges e ON e.raw = v.x

-- case: BOOLEAN keys
SELECT v.x, e.id FROM VALUES (true), (false), (NULL) AS v (x) LEFT JOIN edges e ON e.flag = v.x

-- case: DATE keys
SELECT v.x, e.id FROM VALUES (DATE '2013-01-01'), (DATE '1969-12-31'), (DATE '0001-01-01'), (NULL) AS v (x) LEFT JOIN edges e ON e.day = v.x

-- case: TIMESTAMP against DATE
SELECT v.x, e.id FROM VALUES (TIMESTAMP '2013-01-01 00:00:00'), (TIMESTAMP '2013-01-02 00:00:01'), (NULL) AS v (x) LEFT JOIN edges e ON e.day = v.x

-- case: DATE against TIMESTAMP
SELECT v.x, e.id FROM VALUES (DATE '2013-01-01'), (DATE '2013-01-02'), (NULL) AS v (x) LEFT JOIN edges e ON e.moment = v.x

-- case: DATE against TIMESTAMP in another time zone
-- conf: spark.sql.session.timeZone = Asia/Kolkata
SELECT v.x, e.id FROM VALUES (TIMESTAMP '2013-01-01 10:30:00'), (DATE '2013-01-04') AS v (x) LEFT JOIN edges e ON e.moment = v.x

-- case: TIMESTAMP_NTZ against TIMESTAMP
SELECT v.x, e.id FROM VALUES (TIMESTAMP_NTZ '2013-01-01 00:00:00'), (TIMESTAMP_NTZ '2013-01-04 00:00:00'), (NULL) AS v (x) LEFT JOIN edges e ON e.moment = v.x

-- case: TIMESTAMP against TIMESTAMP_NTZ
-- conf: spark.sql.session.timeZone = UTC
SELECT v.x, e.id FROM VALUES (TIMESTAMP '2013-01-01 00:00:00'), (TIMESTAMP '2013-01-04 05:00:00'), (NULL) AS v (x) LEFT JOIN edges e ON e.local = v.x

-- case: NULL in a part of the key
-- lookup: weather
SELECT v.o, v.t, w.temp FROM VALUES ('EWR', TIMESTAMP '2013-01-01 05:00:00'), ('EWR', NULL), (NULL, TIMESTAMP '2013-01-01 05:00:00'), (NULL, NULL) AS v (o, t) LEFT JOIN weather w ON w.origin = v.o AND w.time_hour = v.t

-- case: NULL keys of a semi and an anti join
SELECT 'semi' AS kind, v.x FROM VALUES (1), (NULL), (9) AS v (x) LEFT SEMI JOIN edges e ON e.id = v.x
UNION ALL SELECT 'anti', v.x FROM VALUES (1), (NULL), (9) AS v (x) LEFT ANTI JOIN edges e ON e.id = v.x

-- case: an untyped NULL as key
SELECT v.x, e.id FROM VALUES (1) AS v (x) LEFT JOIN edges e ON e.id = NULL

-- case: a cast on the left
SELECT v.x, e.id FROM VALUES ('1'), ('2') AS v (x) LEFT JOIN edges e ON e.id = CAST(v.x AS INT)

-- case: a cast around the column
SELECT v.x, e.id FROM VALUES ('1'), ('2') AS v (x) JOIN edges e ON CAST(e.id AS STRING) = v.x AND e.id = INT(v.x)

-- case: a literal of another type
SELECT f.flight, e.word FROM flights f JOIN edges e ON e.id = '2' AND e.money = 0.1 WHERE f.hour = 5

-- case: different types in USING
SELECT id, e.word FROM (SELECT INT(hour - 4) AS id, flight FROM flights WHERE hour < 8) f LEFT JOIN edges e USING (id)

-- case: an explicit binary collation on the left
SELECT v.x, e.id FROM (SELECT x COLLATE UTF8_BINARY AS x FROM VALUES ('a'), ('A') AS v (x)) v LEFT JOIN edges e ON e.word = v.x

-- case: an INTERVAL beside the key
SELECT f.flight, e.id FROM flights f LEFT JOIN edges e ON e.moment = f.time_hour + INTERVAL '1' DAY

-- case: IN with other types
SELECT v.x FROM VALUES (1.0D), (1.5D), (NULL) AS v (x) WHERE v.x IN (SELECT id FROM edges)

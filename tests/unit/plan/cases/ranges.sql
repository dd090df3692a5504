-- case: a range without a key
SELECT o.id, n.name FROM orders o JOIN networks n ON o.ip BETWEEN n.low AND n.high
-- becomes:
SELECT o.id, n.name FROM orders o LATERAL VIEW inline(ask_networks(o.ip)) n

-- case: two comparisons, conditions beside them, and the ends named elsewhere
SELECT n.low, n.name FROM orders o LEFT JOIN networks n ON n.low <= o.ip AND o.id > 3 AND o.ip < n.high AND n.name <> 'x'
-- becomes:
SELECT n.low, n.name FROM orders o LATERAL VIEW OUTER inline(filter(ask_networks(if((o.id > 3), o.ip, NULL)), `__lookup_row` -> (`__lookup_row`.`name` <> 'x'))) n

-- case: a range of which no row comes out
SELECT o.id FROM orders o LEFT ANTI JOIN networks n ON o.ip > n.low AND n.high >= o.ip
-- becomes:
SELECT o.id FROM orders o LATERAL VIEW inline(slice(array(struct()), 1, int(size(ask_networks(o.ip)) = 0))) `__lookup_semi_1`

-- case: the swapped sides of a BETWEEN are no range
SELECT n.name FROM orders o JOIN networks n ON n.low BETWEEN o.ip AND o.id
-- becomes:
SELECT n.name FROM orders o JOIN scan_networks__low_name AS n ON n.low BETWEEN o.ip AND o.id

-- case: two values are no range
SELECT n.name FROM orders o JOIN networks n ON o.ip >= n.low AND o.id <= n.high
-- becomes:
SELECT n.name FROM orders o JOIN scan_networks__low_high_name AS n ON o.ip >= n.low AND o.id <= n.high

-- case: each call of a random function is another value
SELECT n.name FROM orders o JOIN networks n ON rand() BETWEEN n.low AND n.high
-- becomes:
SELECT n.name FROM orders o JOIN scan_networks__low_high_name AS n ON rand() BETWEEN n.low AND n.high

-- case: a range in WHERE, which stays there, between commas
SELECT n.name FROM orders o, networks n WHERE o.ip BETWEEN n.low AND n.high
-- becomes:
SELECT n.name FROM orders o LATERAL VIEW inline(ask_networks(o.ip)) n WHERE o.ip BETWEEN n.low AND n.high

-- case: a range in WHERE of what stands behind the table is none
SELECT n.name FROM orders o CROSS JOIN networks n CROSS JOIN x WHERE x.ip BETWEEN n.low AND n.high
-- becomes:
SELECT n.name FROM orders o CROSS JOIN scan_networks__low_high_name AS n CROSS JOIN x WHERE x.ip BETWEEN n.low AND n.high

-- case: a range in WHERE of a constant is none
SELECT n.name FROM orders o CROSS JOIN networks n WHERE 7 BETWEEN n.low AND n.high
-- becomes:
SELECT n.name FROM orders o CROSS JOIN scan_networks__low_high_name AS n WHERE 7 BETWEEN n.low AND n.high

-- case: a range of the table on the left
SELECT n.name FROM networks n RIGHT JOIN orders o ON o.ip BETWEEN n.low AND n.high
-- becomes:
SELECT n.name FROM orders o LATERAL VIEW OUTER inline(ask_networks(o.ip)) n

-- case: a range beside an equality
SELECT n.name FROM orders o JOIN networks n ON o.name = n.name AND o.ip BETWEEN n.low AND n.high
-- becomes:
SELECT n.name FROM orders o LATERAL VIEW inline(filter(ask_networks(o.name), `__lookup_row` -> (o.ip BETWEEN `__lookup_row`.`low` AND `__lookup_row`.`high`))) n

-- case: a range of a table that answers keys only
SELECT r.rate FROM orders o JOIN rates r ON o.k BETWEEN r.currency AND r.kind
-- refused:
line 1, column 45: The lookup join with r has no key: no equality between an expression of the left side and a column that can be asked by. Columns that can be asked by: currency, kind, rate.
SELECT r.rate FROM orders o JOIN rates r ON o.k BETWEEN r.currency AND r.kind
                                            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

-- case: EXISTS with a range
SELECT o.id FROM orders o WHERE EXISTS (SELECT 1 FROM networks n WHERE o.ip BETWEEN n.low AND n.high)
-- becomes:
SELECT o.id FROM orders o LATERAL VIEW inline(slice(array(struct()), 1, int(size(ask_networks(o.ip)) > 0))) `__lookup_semi_1` WHERE true

-- case: NOT EXISTS with a range and a condition beside it
SELECT o.id FROM orders o WHERE NOT EXISTS (SELECT 1 FROM networks n WHERE n.low <= o.ip AND o.ip < n.high AND n.name <> 'x')
-- becomes:
SELECT o.id FROM orders o LATERAL VIEW inline(slice(array(struct()), 1, int(size(filter(ask_networks(o.ip), `__lookup_row` -> (`__lookup_row`.`name` <> 'x'))) = 0))) `__lookup_semi_1` WHERE true

-- case: EXISTS with one comparison
SELECT o.id FROM orders o WHERE EXISTS (SELECT 1 FROM networks n WHERE n.low <= o.ip)
-- becomes:
SELECT o.id FROM orders o WHERE EXISTS (SELECT 1 FROM scan_networks__low AS n WHERE n.low <= o.ip)

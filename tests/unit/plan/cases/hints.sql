-- case: a hint by alias, other hints beside it stay
SELECT /*+ BROADCAST(z), LOOKUP('table'='c', 'capacity'='5') */ c.name FROM orders o JOIN zips z ON o.zip = z.zip JOIN customers c ON o.k = c.id
-- becomes:
SELECT /*+ BROADCAST(z) */ c.name FROM orders o JOIN zips z ON o.zip = z.zip LATERAL VIEW inline(ask_customers(o.k)) c

-- case: several blocks
SELECT /*+ LOOKUP('table'='c') */ /*+ REPARTITION(3) */ c.name FROM orders o JOIN customers c ON o.k = c.id
-- becomes:
SELECT  /*+ REPARTITION(3) */ c.name FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c

-- case: a hint by the name where there is no alias
SELECT /*+ lookup('table' = 'CUSTOMERS') */ name FROM orders o JOIN customers ON o.k = customers.id
-- becomes:
SELECT  name FROM orders o LATERAL VIEW inline(ask_customers(o.k)) customers

-- case: where there is an alias the name does not match
SELECT /*+ LOOKUP('table'='customers') */ c.name FROM orders o JOIN customers c ON o.k = c.id
-- refused:
line 1, column 27: LOOKUP names 'customers', but no lookup join in this query block has that alias. Where a table has an alias, the hint uses it: 'c'.
SELECT /*+ LOOKUP('table'='customers') */ c.name FROM orders o JOIN customers c ON o.k = c.id
                          ^^^^^^^^^^^

-- case: a hint that matches nothing, and one of another query block
SELECT /*+ LOOKUP('table'='d') */ s.name FROM (SELECT /*+ LOOKUP('table'='x') */ d.name FROM orders o JOIN customers d ON o.k = d.id) s
-- refused:
line 1, column 27: LOOKUP names 'd', but no lookup join in this query block has that alias. The block has no lookup join: a lookup table is the right side of a JOIN, created WITH ('connector' = ...).
SELECT /*+ LOOKUP('table'='d') */ s.name FROM (SELECT /*+ LOOKUP('table'='x') */ d.name FROM orders o JOIN customers d ON o.k = d.id) s
                          ^^^
line 1, column 74: LOOKUP names 'x', but no lookup join in this query block has that alias. Known: d.
SELECT /*+ LOOKUP('table'='d') */ s.name FROM (SELECT /*+ LOOKUP('table'='x') */ d.name FROM orders o JOIN customers d ON o.k = d.id) s
                                                                         ^^^

-- case: a hint without any lookup join
SELECT /*+ LOOKUP('table'='z') */ 1 FROM orders o JOIN zips z ON o.zip = z.zip
-- refused:
line 1, column 27: LOOKUP names 'z', but no lookup join in this query block has that alias. The block has no lookup join: a lookup table is the right side of a JOIN, created WITH ('connector' = ...).
SELECT /*+ LOOKUP('table'='z') */ 1 FROM orders o JOIN zips z ON o.zip = z.zip
                          ^^^

-- case: a hint for a table that is read
SELECT /*+ LOOKUP('table'='c') */ o.id FROM orders o JOIN customers c ON o.k = c.id AND lookup_get('customers', 'zip', c.id) = 'x'
-- refused:
line 1, column 27: LOOKUP names 'c', which is read whole, because a lookup_get in ON has its columns as key. Leave the hint out, or join the table by an equality of its key.
SELECT /*+ LOOKUP('table'='c') */ o.id FROM orders o JOIN customers c ON o.k = c.id AND lookup_get('customers', 'zip', c.id) = 'x'
                          ^^^

-- case: incomplete retry
SELECT /*+ LOOKUP('table'='c', 'retry-predicate'='lookup_miss', 'fixed-delay'='1s') */ c.name FROM orders o JOIN customers c ON o.k = c.id
-- refused:
line 1, column 50: A retry also needs 'retry-strategy', 'max-attempts'. For example 'retry-predicate'='lookup_miss', 'retry-strategy'='fixed_delay', 'fixed-delay'='10s', 'max-attempts'='3'.
SELECT /*+ LOOKUP('table'='c', 'retry-predicate'='lookup_miss', 'fixed-delay'='1s') */ c.name FROM orders o JOIN customers c ON o.k = c.id
                                                 ^^^^^^^^^^^^^

-- case: options of the other strategy, and an unknown predicate
SELECT /*+ LOOKUP('table'='c', 'retry-predicate'='lookup_mis', 'retry-strategy'='exponential_delay', 'fixed-delay'='1s', 'initial-backoff'='1s', 'max-attempts'='2') */ c.name FROM orders o JOIN customers c ON o.k = c.id
-- refused:
line 1, column 50: No retry predicate is called 'lookup_mis'. Did you mean 'lookup_miss'? Your own: lookup_hints.register_retry_predicate(name, function).
SELECT /*+ LOOKUP('table'='c', 'retry-predicate'='lookup_mis', 'retry-strategy'='exponential_delay', 'fixed-delay'='1s', 'initial-backoff'='1s', 'max-attempts'='2') */ c.name FROM orders o JOIN customers c ON o.k = c.id
                                                 ^^^^^^^^^^^^
line 1, column 116: 'fixed-delay' belongs to the strategy 'fixed_delay', not to 'exponential_delay'.
SELECT /*+ LOOKUP('table'='c', 'retry-predicate'='lookup_mis', 'retry-strategy'='exponential_delay', 'fixed-delay'='1s', 'initial-backoff'='1s', 'max-attempts'='2') */ c.name FROM orders o JOIN customers c ON o.k = c.id
                                                                                                                   ^^^^

-- case: a maximum backoff below the initial one
SELECT /*+ LOOKUP('table'='c', 'retry-predicate'='exception', 'retry-strategy'='exponential_delay', 'max-backoff'='1s', 'initial-backoff'='2s', 'max-attempts'='2') */ c.name FROM orders o JOIN customers c ON o.k = c.id
-- refused:
line 1, column 50: the maximum backoff (1.0 s) is shorter than the initial one (2.0 s).
SELECT /*+ LOOKUP('table'='c', 'retry-predicate'='exception', 'retry-strategy'='exponential_delay', 'max-backoff'='1s', 'initial-backoff'='2s', 'max-attempts'='2') */ c.name FROM orders o JOIN customers c ON o.k = c.id
                                                 ^^^^^^^^^^^

-- case: shuffle partitions the left table by key
SELECT /*+ LOOKUP('table'='c', 'shuffle'='true') */ c.name FROM db.orders AS o JOIN customers c ON o.k = c.id
-- becomes:
SELECT  c.name FROM (SELECT * FROM db.orders AS o DISTRIBUTE BY (o.k)) AS `o` LATERAL VIEW inline(ask_customers(o.k)) c

-- case: skip drops rows in a left join
SELECT /*+ LOOKUP('table'='c', 'on-error'='skip') */ c.name FROM orders o LEFT JOIN customers c ON o.k = c.id AND c.zip > 'a'
-- becomes:
SELECT  c.name FROM orders o LATERAL VIEW inline(transform(array(ask_customers(o.k)), `__lookup_rows` -> CASE WHEN `__lookup_rows` IS NULL THEN array() WHEN size(filter(`__lookup_rows`, `__lookup_row` -> (`__lookup_row`.`zip` > 'a'))) = 0 THEN array(NULL) ELSE filter(`__lookup_rows`, `__lookup_row` -> (`__lookup_row`.`zip` > 'a')) END)[0]) c

-- case: skip in an inner join needs nothing
SELECT /*+ LOOKUP('table'='c', 'on-error'='skip') */ c.name FROM orders o JOIN customers c ON o.k = c.id
-- becomes:
SELECT  c.name FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c

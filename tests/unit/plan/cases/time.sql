-- case: the time of a left column
SELECT c.name FROM orders o JOIN customers FOR SYSTEM_TIME AS OF o.proc_time AS c ON o.k = c.id
-- becomes:
SELECT c.name FROM orders o LATERAL VIEW inline(ask_customers(o.k)) c

-- case: PROCTIME and no AS
SELECT c.name FROM orders o LEFT JOIN customers FOR SYSTEM_TIME AS OF PROCTIME() c ON o.k = c.id
-- becomes:
SELECT c.name FROM orders o LATERAL VIEW OUTER inline(ask_customers(o.k)) c

-- case: current_timestamp and no alias
SELECT customers.name FROM orders o LEFT JOIN customers FOR SYSTEM_TIME AS OF current_timestamp ON o.k = customers.id
-- becomes:
SELECT customers.name FROM orders o LATERAL VIEW OUTER inline(ask_customers(o.k)) customers

-- case: Spark's spelling
SELECT c.name FROM orders o LEFT JOIN customers TIMESTAMP AS OF now() c ON o.k = c.id
-- becomes:
SELECT c.name FROM orders o LATERAL VIEW OUTER inline(ask_customers(o.k)) c

-- case: a fixed time
SELECT c.name FROM orders o LEFT JOIN customers FOR SYSTEM_TIME AS OF TIMESTAMP '2020-01-01 00:00:00' c ON o.k = c.id
-- refused:
line 1, column 71: c is asked for a time of its own, but connector 'both' knows only the present. Write PROCTIME() or current_timestamp(), or leave FOR SYSTEM_TIME AS OF out.
SELECT c.name FROM orders o LEFT JOIN customers FOR SYSTEM_TIME AS OF TIMESTAMP '2020-01-01 00:00:00' c ON o.k = c.id
                                                                      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

-- case: a time that is computed
SELECT c.name FROM orders o LEFT JOIN customers FOR SYSTEM_TIME AS OF current_timestamp() - INTERVAL 1 DAY c ON o.k = c.id
-- refused:
line 1, column 71: c is asked for a time of its own, but connector 'both' knows only the present. Write PROCTIME() or current_timestamp(), or leave FOR SYSTEM_TIME AS OF out.
SELECT c.name FROM orders o LEFT JOIN customers FOR SYSTEM_TIME AS OF current_timestamp() - INTERVAL 1 DAY c ON o.k = c.id
                                                                      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

-- case: a fixed time of a table that is read whole
SELECT * FROM customers FOR SYSTEM_TIME AS OF TIMESTAMP '2020-01-01 00:00:00' c
-- refused:
line 1, column 47: c is asked for a time of its own, but connector 'both' knows only the present. Write PROCTIME() or current_timestamp(), or leave FOR SYSTEM_TIME AS OF out.
SELECT * FROM customers FOR SYSTEM_TIME AS OF TIMESTAMP '2020-01-01 00:00:00' c
                                              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

-- case: a time that ends the text
SELECT c.name FROM orders o JOIN customers TIMESTAMP AS OF
-- becomes:
SELECT c.name FROM orders o JOIN scan_customers__name AS TIMESTAMP AS OF

-- case: a time that ends the text, where a hint wants it asked
SELECT /*+ LOOKUP('table'='TIMESTAMP') */ c.name FROM orders o JOIN customers TIMESTAMP AS OF
-- refused:
line 1, column 64: The lookup join with TIMESTAMP cannot run: it has no ON condition, so nothing says which rows to ask for.
SELECT /*+ LOOKUP('table'='TIMESTAMP') */ c.name FROM orders o JOIN customers TIMESTAMP AS OF
                                                               ^^^^^^^^^^^^^^^^^^^^^^^^

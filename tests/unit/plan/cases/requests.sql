-- case: a column that shapes the request is asked by beyond the primary key
SELECT t.text FROM orders o LEFT JOIN texts t ON o.k = t.id AND upper(o.lang) = t.lang AND t.region = 'EU'
-- becomes:
SELECT t.text FROM orders o LATERAL VIEW OUTER inline(filter(ask_texts(o.k, upper(o.lang)), `__lookup_row` -> (`__lookup_row`.`region` = 'EU'))) t

-- case: a column that shapes the request may be left out
SELECT t.text FROM orders o JOIN texts t ON o.k = t.id
-- becomes:
SELECT t.text FROM orders o LATERAL VIEW inline(ask_texts(o.k)) t

-- case: a column that the request needs may not be left out
SELECT t.text FROM orders o JOIN texts t ON o.lang = t.lang
-- refused:
line 1, column 45: The lookup join with t cannot ask its source without id. Add t.id = ... to the condition.
SELECT t.text FROM orders o JOIN texts t ON o.lang = t.lang
                                            ^^^^^^^^^^^^^^^

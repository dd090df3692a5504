"""Sales of a few shops as a star, and queries over it in which conditions, not the order of FROM, say what joins."""

from __future__ import annotations

from random import Random

import pyarrow as pa

from tests.queries.worlds import Data

SIZES = {
    "buyers": 60,
    "homes": 45,
    "circles": 35,
    "items": 30,
    "makers": 8,
    "shops": 6,
    "days": 40,
    "sales": 300,
}
DIMENSIONS = ("buyers", "homes", "circles", "items", "makers", "shops", "days")
"""The tables that become lookup tables."""


def tables(*, keyed: bool) -> dict[str, Data]:
    """The tables, whose dimensions declare their primary keys only if they are ``keyed``."""
    random, sizes = Random(20), SIZES

    def to(name: str, count: int) -> pa.Array:
        drawn = [None if random.random() < 0.05 else random.randrange(sizes[name]) for _ in range(count)]
        return pa.array(drawn, pa.int64())

    def of(table: str, **columns: pa.Array) -> Data:
        key = ("id",) if keyed and table in DIMENSIONS else ()
        return Data(pa.table({"id": pa.array(range(sizes[table]), pa.int64()), **columns}), key)

    def words(name: str, *among: str) -> pa.Array:
        return pa.array([random.choice(among) for _ in range(sizes[name])])

    n = sizes
    return {
        "homes": of("homes", city=words("homes", "Bern", "Turin", "Lyon"), shop=to("shops", n["homes"])),
        "circles": of("circles", club=words("circles", "gold", "blue"), level=to("shops", n["circles"])),
        "buyers": of(
            "buyers",
            home=to("homes", n["buyers"]),
            circle=to("circles", n["buyers"]),
            since=to("days", n["buyers"]),
            name=words("buyers", "Ann", "Bob", "Cy"),
        ),
        "makers": of("makers", land=words("makers", "CH", "IT")),
        "items": of("items", maker=to("makers", n["items"]), kind=words("items", "food", "book", "toy")),
        "shops": of("shops", place=words("shops", "Bern", "Lyon"), opened=to("days", n["shops"])),
        "days": of("days", month=pa.array([day % 12 for day in range(n["days"])], pa.int64())),
        "sales": of(
            "sales",
            day=to("days", n["sales"]),
            item=to("items", n["sales"]),
            buyer=to("buyers", n["sales"]),
            shop=to("shops", n["sales"]),
            circle=to("circles", n["sales"]),
            paid=pa.array([random.randrange(100) for _ in range(n["sales"])], pa.int64()),
        ),
    }


QUERIES = {
    "a dimension between two others": """
        SELECT b.name, h.city, c.club FROM buyers b, homes h, circles c WHERE b.home = h.id AND b.circle = c.id""",
    "a dimension between two others, written last": """
        SELECT b.name, h.city, c.club FROM homes h, circles c, buyers b WHERE h.id = b.home AND c.id = b.circle""",
    "a dimension between three others, with filters": """
        SELECT b.name, h.city, c.club, d.month FROM homes h, circles c, days d, buyers b
        WHERE h.id = b.home AND c.id = b.circle AND d.id = b.since AND c.club = 'gold' AND d.month < 6""",
    "every column of a dimension between two others": """
        SELECT * FROM homes h, circles c, buyers b WHERE h.id = b.home AND c.id = b.circle""",
    "a star": """
        SELECT i.kind, p.place, d.month, sum(s.paid) AS paid FROM sales s, items i, shops p, days d
        WHERE s.item = i.id AND s.shop = p.id AND s.day = d.id AND d.month IN (1, 2, 3)
        GROUP BY i.kind, p.place, d.month""",
    "a star whose facts are written last": """
        SELECT i.kind, p.place, d.month, s.paid FROM items i, shops p, days d, sales s
        WHERE s.item = i.id AND s.shop = p.id AND s.day = d.id""",
    "every column of a star whose facts are written last": """
        SELECT * FROM items i, shops p, days d, sales s WHERE s.item = i.id AND s.shop = p.id AND s.day = d.id""",
    "a snowflake": """
        SELECT m.land, h.city, c.club, count(*) AS n FROM makers m, homes h, circles c, sales s, items i, buyers b
        WHERE s.item = i.id AND i.maker = m.id AND s.buyer = b.id AND b.home = h.id AND b.circle = c.id
        GROUP BY m.land, h.city, c.club""",
    "a snowflake whose branches meet": """
        SELECT s.id, h.city, p.place FROM sales s, buyers b, homes h, shops p
        WHERE s.buyer = b.id AND b.home = h.id AND h.shop = p.id AND s.shop = p.id""",
    "a dimension used twice": """
        SELECT s.id, d1.month AS sold, d2.month AS since FROM days d1, days d2, sales s, buyers b
        WHERE s.day = d1.id AND s.buyer = b.id AND b.since = d2.id AND d1.month > d2.month""",
    "two facts through one dimension": """
        SELECT s.id, t.id AS other FROM sales s, sales t, buyers b
        WHERE s.buyer = b.id AND t.circle = b.circle AND s.paid > 90 AND t.paid < 5""",
    "a range beside the equalities": """
        SELECT b.name, h.city FROM homes h, circles c, buyers b
        WHERE h.id = b.home AND c.id = b.circle AND h.shop < c.level""",
    "an equality of sums": """
        SELECT b.name FROM homes h, circles c, days d, buyers b
        WHERE h.id = b.home AND c.id = b.circle AND d.id = b.since AND h.shop + c.level = d.month""",
    "joins without ON, conditions in WHERE": """
        SELECT b.name, h.city, c.club FROM homes h CROSS JOIN circles c JOIN buyers b
        WHERE h.id = b.home AND c.id = b.circle""",
    "a CROSS JOIN before a join by both sides": """
        SELECT b.name, h.city, c.club FROM homes h CROSS JOIN circles c
        JOIN buyers b ON h.id = b.home AND c.id = b.circle""",
    "a CROSS JOIN that a later join connects": """
        SELECT s.id, h.city FROM homes h CROSS JOIN sales s JOIN items i ON i.id = s.item
        JOIN buyers b ON b.id = s.buyer AND b.home = h.id""",
    "a comma before a join by both sides": """
        SELECT b.name, h.city, c.club FROM homes h, circles c JOIN buyers b ON h.id = b.home AND c.id = b.circle""",
    "a comma before a join by both sides, with another table before": """
        SELECT b.name, d.month FROM days d, homes h, circles c JOIN buyers b ON h.id = b.home AND c.id = b.circle
        WHERE d.id = b.since""",
    "joins in a good order": """
        SELECT b.name, h.city, c.club FROM homes h JOIN buyers b ON b.home = h.id JOIN circles c ON c.id = b.circle""",
    "joins and commas": """
        SELECT s.id, i.kind, h.city FROM homes h, items i JOIN sales s ON s.item = i.id, buyers b
        WHERE b.id = s.buyer AND h.id = b.home""",
    "an outer join behind a comma": """
        SELECT b.name, h.city, d.month FROM homes h, circles c, buyers b LEFT JOIN days d ON d.id = b.since
        WHERE h.id = b.home AND c.id = b.circle""",
    "below EXISTS": """
        SELECT s.id FROM sales s WHERE EXISTS (SELECT 1 FROM homes h, circles c, buyers b
        WHERE h.id = b.home AND c.id = b.circle AND b.id = s.buyer)""",
    "in a derived table": """
        SELECT x.name, count(*) AS n FROM sales s, (SELECT b.id, b.name, h.city FROM homes h, circles c, buyers b
        WHERE h.id = b.home AND c.id = b.circle) x WHERE x.id = s.buyer GROUP BY x.name""",
    "in a CTE that is read twice": """
        WITH x AS (SELECT b.id, b.name, h.city FROM homes h, circles c, buyers b
        WHERE h.id = b.home AND c.id = b.circle)
        SELECT x.name, y.city FROM x, sales s, x y WHERE x.id = s.buyer AND y.id = s.item""",
    "in pipe syntax": """
        FROM homes h, circles c, buyers b |> WHERE h.id = b.home AND c.id = b.circle |> SELECT b.name, h.city""",
    "a product that is meant": """
        SELECT p.place, m.land, i.kind FROM shops p, makers m, items i WHERE i.maker = m.id""",
    "a dimension without a condition": """
        SELECT s.id, m.land FROM sales s, makers m, shops p WHERE s.shop = p.id AND s.paid > 97""",
}

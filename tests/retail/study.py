"""A retailer with three channels: 21 tables, the data, and the policy that protects each customer.

Customers buy in stores, by catalog and on the web, and return some of it. Where they live, what they view and
what they bought is private; days, items, stores, promotions and the like are public. Bounds and values in the
policy are what the business knows without looking: prices, quantities, the years it keeps.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import duckdb

CUSTOMERS = 3000

_PUBLIC = """
CREATE TABLE dates AS SELECT
    CAST(range AS INTEGER) AS date_key,
    CAST(DATE '2021-01-01' + CAST(range AS INTEGER) AS DATE) AS day,
    CAST(year(day) AS INTEGER) AS year,
    CAST(quarter(day) AS INTEGER) AS quarter,
    CAST(month(day) AS INTEGER) AS month,
    CAST(dayofweek(day) AS INTEGER) AS weekday,
    dayname(day) AS day_name,
    CAST((year(day) - 2021) * 12 + month(day) - 1 AS INTEGER) AS month_seq,
    CAST(range // 7 AS INTEGER) AS week_seq,
    (month(day) = 12 AND day(day) > 20) AS holiday
FROM range(1095);

CREATE TABLE times AS SELECT
    CAST(range AS INTEGER) AS time_key,
    CAST(range AS INTEGER) AS hour,
    CASE WHEN range < 12 THEN 'AM' ELSE 'PM' END AS am_pm,
    CASE WHEN range BETWEEN 6 AND 9 THEN 'breakfast' WHEN range BETWEEN 17 AND 20 THEN 'dinner' END AS meal
FROM range(24);

CREATE TABLE items AS SELECT
    CAST(range + 1 AS INTEGER) AS item_key,
    'ITEM' || lpad(CAST(range + 1 AS VARCHAR), 4, '0') AS item_id,
    ['Books', 'Home', 'Music', 'Shoes', 'Sports'][CAST(range % 5 AS INTEGER) + 1] AS category,
    category || ' ' || ['basic', 'classic', 'premium'][CAST(range % 3 AS INTEGER) + 1] AS class,
    'brand ' || CAST(1 + range % 7 AS VARCHAR) AS brand,
    CAST(1 + range % 11 AS INTEGER) AS manufacturer,
    ['red', 'green', 'blue', 'black'][CAST(range % 4 AS INTEGER) + 1] AS color,
    CASE WHEN range % 13 <> 0 THEN ['small', 'medium', 'large'][CAST(range % 3 AS INTEGER) + 1] END AS size,
    CAST(1 + (range * 37) % 90 + 0.99 AS DOUBLE) AS price,
    CAST(round(price * 0.6, 2) AS DOUBLE) AS wholesale
FROM range(150);

CREATE TABLE stores AS SELECT
    CAST(range + 1 AS INTEGER) AS store_key,
    'Store ' || chr(CAST(65 + range AS INTEGER)) AS name,
    ['Leeds', 'Lyon', 'Kassel', 'Graz'][CAST(range % 4 AS INTEGER) + 1] AS city,
    ['UK', 'FR', 'DE', 'AT'][CAST(range % 4 AS INTEGER) + 1] AS country,
    CAST(5000 + 500 * range AS INTEGER) AS floor_space,
    CAST(40 + 10 * (range % 5) AS INTEGER) AS employees
FROM range(8);

CREATE TABLE promotions AS SELECT
    CAST(range + 1 AS INTEGER) AS promo_key,
    'promo ' || CAST(range + 1 AS VARCHAR) AS name,
    CASE WHEN range % 2 = 0 THEN 'Y' ELSE 'N' END AS by_email,
    CASE WHEN range % 3 = 0 THEN 'Y' ELSE 'N' END AS by_tv
FROM range(12);

CREATE TABLE warehouses AS SELECT
    CAST(range + 1 AS INTEGER) AS warehouse_key,
    ['North depot', 'South depot', 'East depot'][CAST(range AS INTEGER) + 1] AS name,
    ['UK', 'FR', 'DE'][CAST(range AS INTEGER) + 1] AS country,
    CAST(100000 * (range + 1) AS INTEGER) AS square_feet
FROM range(3);

CREATE TABLE ship_modes AS SELECT
    CAST(range + 1 AS INTEGER) AS mode_key,
    ['express', 'overnight', 'regular', 'library'][CAST(range AS INTEGER) + 1] AS type,
    ['Swift', 'Heron'][CAST(range % 2 AS INTEGER) + 1] AS carrier
FROM range(4);

CREATE TABLE reasons AS SELECT
    CAST(range + 1 AS INTEGER) AS reason_key,
    ['too large', 'too small', 'damaged', 'late', 'changed mind'][CAST(range AS INTEGER) + 1] AS reason
FROM range(5);

CREATE TABLE call_centers AS SELECT
    CAST(range + 1 AS INTEGER) AS center_key, 'Center ' || CAST(range + 1 AS VARCHAR) AS name,
    ['Ada', 'Grace', 'Edith'][CAST(range AS INTEGER) + 1] AS manager
FROM range(3);

CREATE TABLE web_sites AS SELECT
    CAST(range + 1 AS INTEGER) AS site_key, 'site_' || CAST(range + 1 AS VARCHAR) AS name
FROM range(3);

CREATE TABLE income_bands AS SELECT
    CAST(range + 1 AS INTEGER) AS band_key,
    CAST(range * 20000 AS INTEGER) AS lower, CAST((range + 1) * 20000 - 1 AS INTEGER) AS upper
FROM range(6);

CREATE TABLE household_demographics AS SELECT
    CAST(range + 1 AS INTEGER) AS household_key,
    CAST(1 + range % 6 AS INTEGER) AS band_key,
    ['>10000', '5001-10000', '1001-5000', '0-500', 'Unknown'][CAST(range % 5 AS INTEGER) + 1] AS buy_potential,
    CAST(range % 7 AS INTEGER) AS dependents,
    CAST(range % 4 AS INTEGER) AS vehicles
FROM range(120);

CREATE TABLE customer_demographics AS SELECT
    CAST(range + 1 AS INTEGER) AS demo_key,
    ['F', 'M'][CAST(range % 2 AS INTEGER) + 1] AS gender,
    ['S', 'M', 'D', 'W'][CAST(range // 2 % 4 AS INTEGER) + 1] AS marital,
    ['Primary', 'Secondary', 'College', 'Degree'][CAST(range // 8 % 4 AS INTEGER) + 1] AS education
FROM range(32);

CREATE TABLE inventory AS SELECT
    CAST(week * 7 AS INTEGER) AS date_key, item_key, warehouse_key,
    CAST((week * 31 + item_key * 17 + warehouse_key * 7) % 500 AS INTEGER) AS on_hand
FROM range(0, 156, 4) AS weeks(week), items, warehouses;
"""

_PRIVATE = f"""
CREATE TABLE customers AS SELECT
    CAST(range + 1 AS INTEGER) AS customer_key,
    'C' || lpad(CAST(range + 1 AS VARCHAR), 6, '0') AS customer_id,
    CASE WHEN draw(range, 1, 50) > 0 THEN CAST(1 + draw(range, 2, 32) AS INTEGER) END AS demo_key,
    CAST(1 + draw(range, 3, 120) AS INTEGER) AS household_key,
    CASE WHEN draw(range, 4, 20) > 0 THEN CAST(1930 + draw(range, 5, 75) AS INTEGER) END AS birth_year,
    CASE WHEN draw(range, 6, 30) > 0 THEN ['UK', 'FR', 'DE', 'AT'][CAST(1 + draw(range, 7, 4) AS INTEGER)] END AS birth_country,
    CAST(DATE '2021-01-01' + CAST(draw(range, 8, 700) AS INTEGER) AS DATE) AS signup,
    draw(range, 9, 3) = 0 AS preferred
FROM range({CUSTOMERS});

CREATE TABLE addresses AS SELECT
    CAST(range + 1 AS INTEGER) AS customer_key,
    ['Leeds', 'York', 'Lyon', 'Paris', 'Kassel', 'Bonn', 'Graz', 'Linz'][CAST(1 + draw(range, 10, 8) AS INTEGER)] AS city,
    ['UK', 'UK', 'FR', 'FR', 'DE', 'DE', 'AT', 'AT'][CAST(1 + draw(range, 10, 8) AS INTEGER)] AS country,
    lpad(CAST(10000 + draw(range, 11, 40) * 1000 AS VARCHAR), 5, '0') AS zip,
    CAST(-draw(range, 12, 3) AS INTEGER) AS gmt_offset,
    ['apartment', 'house', 'condo'][CAST(1 + draw(range, 13, 3) AS INTEGER)] AS kind
FROM range({CUSTOMERS});
"""

_SALES = """
CREATE TABLE {channel}_sales AS SELECT
    CAST(range // 3 + 1 AS INTEGER) AS order_key,
    CAST(1 + (range * 7) % 150 AS INTEGER) AS item_key,
    CAST(1 + floor({customers} * power(draw(range // 3, {seed}, 10000) / 10000.0, 1.6)) AS INTEGER) AS customer_key,
    CASE WHEN draw(range // 3, {seed} + 1, 40) > 0 THEN CAST(draw(range // 3, {seed} + 2, 1095) AS INTEGER) END AS date_key,
    CAST(draw(range // 3, {seed} + 3, 24) AS INTEGER) AS time_key,
    CAST(1 + draw(range // 3, {seed} + 4, {places}) AS INTEGER) AS {place}_key,
    CAST(1 + draw(range // 3, {seed} + 5, 4) AS INTEGER) AS mode_key,
    CAST(1 + draw(range // 3, {seed} + 6, 3) AS INTEGER) AS warehouse_key,
    CASE WHEN draw(range, {seed} + 7, 3) = 0 THEN CAST(1 + draw(range, {seed} + 8, 12) AS INTEGER) END AS promo_key,
    CASE WHEN draw(range, {seed} + 9, 60) > 0 THEN CAST(1 + draw(range, {seed} + 10, 10) AS INTEGER) END AS quantity,
    CAST(1 + draw(range, {seed} + 11, 9000) / 100.0 AS DOUBLE) AS list_price,
    CAST(round(list_price * (60 + draw(range, {seed} + 12, 41)) / 100.0, 2) AS DOUBLE) AS sales_price,
    CAST(CASE WHEN draw(range, {seed} + 13, 5) = 0 THEN draw(range, {seed} + 14, 20) ELSE 0 END AS DOUBLE) AS coupon,
    CAST(round(coalesce(quantity, 1) * sales_price - coupon, 2) AS DOUBLE) AS paid,
    CAST(round(paid - coalesce(quantity, 1) * list_price * 0.6, 2) AS DOUBLE) AS profit
FROM range({rows});

CREATE TABLE {channel}_returns AS SELECT
    order_key, item_key, customer_key,
    CAST(least(1094, date_key + 1 + draw(order_key, {seed} + 15, 60)) AS INTEGER) AS date_key,
    CAST(1 + draw(order_key * 150 + item_key, {seed} + 16, 5) AS INTEGER) AS reason_key,
    CAST(1 + draw(order_key * 150 + item_key, {seed} + 17, coalesce(quantity, 1)) AS INTEGER) AS quantity,
    CAST(round(paid / 2, 2) AS DOUBLE) AS amount
FROM {channel}_sales WHERE draw(order_key * 150 + item_key, {seed} + 18, 10) = 0;
"""

_VIEWS = f"""
CREATE TABLE page_views AS SELECT
    CAST(1 + floor({CUSTOMERS} * power(draw(range, 90, 10000) / 10000.0, 1.5)) AS INTEGER) AS customer_key,
    TIMESTAMP '2023-01-01' + to_minutes(CAST(draw(range, 91, 129600) AS BIGINT)) AS seen,
    ['home', 'search', 'item', 'cart', 'checkout'][CAST(1 + draw(range, 92, 5) AS INTEGER)] AS page,
    CASE WHEN draw(range, 93, 4) > 0 THEN CAST(1 + draw(range, 94, 150) AS INTEGER) END AS item_key,
    ['phone', 'tablet', 'desktop'][CAST(1 + draw(range, 95, 3) AS INTEGER)] AS device,
    CAST(draw(range, 96, 600) AS INTEGER) AS seconds
FROM range(40000);
"""

CHANNELS = {
    "store": ("store", 8, 200, 36000),
    "catalog": ("center", 3, 300, 18000),
    "web": ("site", 3, 400, 18000),
}
"""Where each channel sells, at how many places, the seed of its data, and how many lines it sold."""


@contextmanager
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    """The retailer's tables, the same data each time."""
    with duckdb.connect() as opened:
        opened.execute(
            "CREATE MACRO draw(n, seed, most) AS CAST(hash(n * 1009 + seed) % CAST(most AS UBIGINT) AS BIGINT)"
        )
        opened.execute(_PUBLIC)
        opened.execute(_PRIVATE)
        for channel, (place, places, seed, rows) in CHANNELS.items():
            opened.execute(
                _SALES.format(
                    channel=channel, place=place, places=places, seed=seed, rows=rows, customers=CUSTOMERS
                )
            )
        opened.execute(_VIEWS)
        yield opened


def _key(**more: Any) -> dict[str, Any]:
    return {"type": "integer", "nullable": False, **more}


def _text(*values: str, **more: Any) -> dict[str, Any]:
    return {"type": "varchar", **({"values": list(values)} if values else {}), **more}


def _number(kind: str, low: float, high: float, **more: Any) -> dict[str, Any]:
    return {"type": kind, "bounds": [low, high], **more}


_COUNTRIES = ("UK", "FR", "DE", "AT")
_DAYS = [dt.date(2021, 1, 1), dt.date(2023, 12, 31)]
_MONEY = {"nullable": False}


def _sales(channel: str) -> dict[str, dict[str, Any]]:
    place, *_ = CHANNELS[channel]
    order = {"order_key": _key(), "item_key": _key(), "date_key": {"type": "integer"}}
    sales = {
        **order,
        "time_key": _key(bounds=[0, 23]),
        f"{place}_key": _key(),
        "mode_key": _key(),
        "warehouse_key": _key(),
        "promo_key": {"type": "integer"},
        "quantity": _number("integer", 1, 10),
        "list_price": _number("double", 0, 100, **_MONEY),
        "sales_price": _number("double", 0, 100, **_MONEY),
        "coupon": _number("double", 0, 20, **_MONEY),
        "paid": _number("double", -20, 1000, **_MONEY),
        "profit": _number("double", -100, 500, **_MONEY),
    }
    returns = {
        **order,
        "reason_key": _key(),
        "quantity": _number("integer", 1, 10, **_MONEY),
        "amount": _number("double", -20, 500, **_MONEY),
    }
    unit, key = {"unit": "customer_key"}, ["order_key", "item_key"]
    whole = {"column": "order_key", "references": f"{channel}_sales.order_key"}
    sold = {"columns": key, "references": [f"{channel}_sales.{column}" for column in key]}
    return {
        f"{channel}_sales": {**unit, "links": [whole], "rows_per_unit": 250, "columns": sales},
        f"{channel}_returns": {
            **unit,
            "link": sold,
            "links": [whole],
            "rows_per_unit": 40,
            "columns": returns,
        },
    }


def policy() -> dict[str, Any]:
    """The policy that protects customers, with a budget that is not at issue here."""
    once = {"unit": "customer_key", "rows_per_unit": 1}
    private: dict[str, dict[str, Any]] = {
        "customers": {
            **once,
            "columns": {
                "customer_id": _text(),
                "demo_key": {"type": "integer"},
                "household_key": _key(),
                "birth_year": _number("integer", 1920, 2010),
                "birth_country": _text(*_COUNTRIES),
                "signup": {"type": "date", "bounds": _DAYS, "nullable": False},
                "preferred": {"type": "boolean", "nullable": False},
            },
        },
        "addresses": {
            **once,
            "columns": {
                "city": _text(nullable=False),
                "country": _text(*_COUNTRIES, nullable=False),
                "zip": _text(nullable=False),
                "gmt_offset": _key(values=[0, -1, -2]),
                "kind": _text("apartment", "house", "condo", nullable=False),
            },
        },
        "page_views": {
            "unit": "customer_key",
            "rows_per_unit": 250,
            "columns": {
                "seen": {
                    "type": "timestamp",
                    "bounds": [dt.datetime(2023, 1, 1), dt.datetime(2023, 3, 31, 23, 59, 59)],
                    "nullable": False,
                },
                "page": _text("home", "search", "item", "cart", "checkout", nullable=False),
                "item_key": {"type": "integer"},
                "device": _text("phone", "tablet", "desktop", nullable=False),
                "seconds": _number("integer", 0, 600, **_MONEY),
            },
        },
    }
    for channel in CHANNELS:
        private |= _sales(channel)
    public = {
        name: {"public": True}
        for name in (
            "dates",
            "times",
            "items",
            "stores",
            "promotions",
            "warehouses",
            "ship_modes",
            "reasons",
            "call_centers",
            "web_sites",
            "income_bands",
            "household_demographics",
            "customer_demographics",
            "inventory",
        )
    }
    return {
        "version": 1,
        "privacy_unit": "customer",
        "budget": {"epsilon": 10**9, "delta": 0.5, "accountant": "zcdp"},
        "tables": private | public,
    }

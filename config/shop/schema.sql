-- The sample shop: what `make demo` captures, and what `make up` offers to play with.
CREATE TABLE customers (
    id bigint PRIMARY KEY,
    email text NOT NULL,
    name text NOT NULL,
    country text NOT NULL,
    newsletter boolean NOT NULL DEFAULT false,
    credit numeric(12,2) NOT NULL DEFAULT 0,
    joined timestamptz NOT NULL
);
CREATE TABLE products (
    id integer PRIMARY KEY,
    sku text NOT NULL,
    name text NOT NULL,
    description text,
    price numeric(10,2) NOT NULL,
    stock integer NOT NULL,
    active boolean NOT NULL DEFAULT true,
    tags text[],
    attributes jsonb,
    weight_kg double precision
);
-- FULL puts values that are stored apart (TOAST) into every change, so that none has to be read again.
ALTER TABLE products REPLICA IDENTITY FULL;
CREATE TABLE orders (
    id bigint PRIMARY KEY,
    customer_id bigint NOT NULL REFERENCES customers,
    status text NOT NULL CHECK (status IN ('placed', 'paid', 'shipped', 'cancelled')),
    total numeric(12,2) NOT NULL,
    note text,
    placed_at timestamptz NOT NULL,
    ship_on date
);
CREATE TABLE order_items (
    order_id bigint REFERENCES orders ON DELETE CASCADE,
    line smallint,
    product_id integer NOT NULL REFERENCES products,
    quantity integer NOT NULL,
    unit_price numeric(10,2) NOT NULL,
    PRIMARY KEY (order_id, line)
);
CREATE TABLE payments (
    id uuid PRIMARY KEY,
    order_id bigint NOT NULL,
    method text NOT NULL,
    amount numeric(12,2) NOT NULL,
    paid_at timestamp NOT NULL,
    reference bytea
);

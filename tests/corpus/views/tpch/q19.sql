SELECT sum(l_extendedprice * (1 - l_discount)) AS revenue FROM lineitem, part
WHERE (p_partkey = l_partkey AND p_brand::text = 'Brand#12' AND p_container::text IN ('SM CASE', 'SM BOX', 'SM PACK', 'SM PKG')
        AND l_quantity >= 1 AND l_quantity <= 31 AND p_size BETWEEN 1 AND 25
        AND l_shipmode::text IN ('AIR', 'AIR REG') AND l_shipinstruct::text = 'DELIVER IN PERSON')
    OR (p_partkey = l_partkey AND p_brand::text = 'Brand#23' AND p_container::text IN ('MED BAG', 'MED BOX', 'MED PKG', 'MED PACK')
        AND l_quantity >= 1 AND l_quantity <= 40 AND p_size BETWEEN 1 AND 50
        AND l_shipmode::text IN ('AIR', 'AIR REG') AND l_shipinstruct::text = 'DELIVER IN PERSON')

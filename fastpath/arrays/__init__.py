"""Operations on plain arrays, without a store: byte ranges, planes, lines, ordered pairs, and binary COPY."""

"""Operations on plain arrays, without a store: byte ranges, planes, lines, ordered pairs, binary COPY."""

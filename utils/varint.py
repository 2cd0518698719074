"""Numbers of seven bits a byte, lowest first, as in protocol buffers and in the index of a checkpoint."""

MAX_BYTES = 10  # 64 bits


def read_varint(content, position):
    """Returns the number at a position, and the position behind it."""
    value = 0
    for place, byte in enumerate(content[position : position + MAX_BYTES]):
        value |= (byte & 127) << 7 * place
        if byte < 128:
            return value, position + place + 1
    raise ValueError("a number without end")


def write_varint(number):
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)

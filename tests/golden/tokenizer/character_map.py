# SPDX-License-Identifier: Apache-2.0
"""Compiled maps of texts to their normal forms, as models of sentencepiece have them: a double array of uint32 units,
which daemon/text/character_map.h describes, and the normal forms."""
import struct

VALUE = 1 << 31  # No byte of a text is the label of a unit with this bit.


def character_map(forms):
    """The map of a dict from texts or bytes, none of them empty, to normal forms."""
    keys = sorted((key if isinstance(key, bytes) else key.encode(), form) for key, form in forms.items())
    normals, places = b"", {}
    for _, form in keys:
        if form not in places:
            places[form] = len(normals)
            normals += form.encode() + b"\0"
    units, bases = {0: 0}, set()

    def add_children(at, depth, below):
        """Of the unit at `at`: `below` are the keys that share its `depth` bytes. A key that ends here has label 0."""
        groups = {}
        for key, form in below:
            groups.setdefault(key[depth] if depth < len(key) else 0, []).append((key, form))
        base = 1
        while base in bases or any(base ^ label in units for label in groups):
            base += 1
        bases.add(base)
        units[at] |= (base ^ at) << 10 | (1 << 8 if 0 in groups else 0)
        for label, inside in groups.items():
            units[base ^ label] = label if label else VALUE | places[inside[0][1]]
        for label, inside in groups.items():
            if label:
                add_children(base ^ label, depth + 1, inside)

    add_children(0, 0, keys)
    assert max(units) < 1 << 21, "units that are further apart have another form"
    trie = b"".join(struct.pack("<I", units.get(at, VALUE)) for at in range((max(units) | 255) + 1))
    return struct.pack("<I", len(trie)) + trie + normals

"""Writes or reads the objects of the test: objects.py put|get COUNT.

The content of each is made from its name, so that who reads it need not have written
it. What is read is compared; a difference ends the program with the object's name.
"""
import hashlib
import sys

import rados

SIZE = 256 << 10


def content(name):
    blocks = (hashlib.sha512(f'{name} {i}'.encode()).digest() for i in range(SIZE // 64))
    return b''.join(blocks)


def main(verb, count):
    ceph = rados.Rados(conffile='/etc/ceph/ceph.conf')
    ceph.connect(timeout=10)
    pool = ceph.open_ioctx('lab')
    for i in range(count):
        name = f'kept-{i}'
        if verb == 'put':
            pool.write_full(name, content(name))
            continue
        got = pool.read(name, SIZE + 1)
        if got != content(name):
            sys.exit(f'{name} is not what was written: {len(got)} bytes')
    pool.close()
    ceph.shutdown()
    print(count)


main(sys.argv[1], int(sys.argv[2]))

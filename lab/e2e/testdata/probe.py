"""Prints what Ceph says of its OSDs, a JSON object a line."""
import json
import time

import rados

EVERY = 0.2
AT_LEAST = 1.0


def ask(command, **args):
    code, reply, why = command(json.dumps(dict(args, format='json')), b'', timeout=5)
    return code, json.loads(reply) if reply else None, why


def look(ceph):
    _, osdmap, _ = ask(ceph.mon_command, prefix='osd dump')
    _, dump, _ = ask(ceph.mgr_command, prefix='pg dump', dumpcontents=['pgs_brief'])
    pgs = dump['pg_stats']
    # Of an OSD that is in, Ceph need not be asked.
    ids = [str(o['osd']) for o in osdmap['osds'] if not o['in']]
    safe = []
    if ids:
        _, answer, _ = ask(ceph.mgr_command, prefix='osd safe-to-destroy', ids=ids)
        safe = answer['safe_to_destroy'] if answer else []
    osds = {}
    for o in osdmap['osds']:
        i = o['osd']
        osds[str(i)] = {
            'uuid': o['uuid'], 'up': bool(o['up']), 'in': bool(o['in']), 'weight': o['weight'],
            'destroyed': 'destroyed' in o['state'], 'safe': i in safe,
            'pgs': sum(1 for p in pgs if i in p['up'] or i in p['acting']),
        }
    return {'osds': osds, 'clean': all(p['state'] == 'active+clean' for p in pgs)}


def main():
    ceph = rados.Rados(conffile='/etc/ceph/ceph.conf')
    ceph.connect(timeout=10)
    before, told = None, 0.0
    while True:
        now = time.time()
        try:
            seen = look(ceph)
        except (rados.Error, TypeError, ValueError) as e:
            print(json.dumps({'t': now, 'error': repr(e)}), flush=True)
            time.sleep(1)
            continue
        if seen != before or now - told >= AT_LEAST:
            before, told = seen, now
            print(json.dumps(dict(seen, t=now)), flush=True)
        time.sleep(EVERY)


main()

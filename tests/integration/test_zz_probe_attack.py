"""probe"""
import json, pytest
from collections.abc import Iterator
from tests.support.agent_api import Gang, SpeakingAgent
from tests.support.people_api import PeopleApi, make_own_gang, people_api, settings_for
from tests.support.postgres import PostgresForTests
from trainer.protocol.agent_report import FactKind
from app.orchestration.controllers import all_controllers
from app.orchestration.controller_frame import run_controller
import itertools, time, httpx
N=itertools.count()

@pytest.fixture(scope="module")
def api(postgres, valkey_url, tmp_path_factory):
    with people_api(settings_for(postgres.clone(), valkey_url, tmp_path_factory.mktemp("s"))) as up:
        yield up

def training(api, **spec):
    name=f"h-{next(N)}"
    a=SpeakingAgent(api, make_own_gang(api,name=name,**spec))
    assert a.register().status_code==200
    a.report()
    a.report(fence=1,facts=[a.fact(FactKind.PREPARED,master_port=20000)])
    a.report(fence=1,phase="train",facts=[a.fact(FactKind.TRAINER_STARTED)])
    return a,name

def look(api,name):
    out=[]
    for p in ('','/attempts','/events','/checkpoints','/metrics','/logs','/cost'):
        r=httpx.get(f'{api.url}/api/v1/jobs/{name}{p}',headers=api.client.headers)
        if r.status_code!=200: out.append((p,r.status_code,r.text[:100]))
    for p in ('/api/v1/jobs','/api/v1/instances','/api/v1/costs','/api/v1/costs/verify','/metrics'):
        r=httpx.get(api.url+p,headers=api.client.headers)
        if r.status_code!=200: out.append((p,r.status_code,r.text[:100]))
    with httpx.Client(base_url=api.url) as b:
        t=b.get('/sign-in').text.split('form_token" value="')[1].split('"')[0]
        r=b.post('/sign-in',data={'key':api.key,'form_token':t}); assert r.status_code==303
        for p in (f'/jobs/{name}',f'/jobs/{name}/live','/jobs',f'/jobs/{name}/log-tail'):
            r=httpx.get(api.url+p,cookies=b.cookies)
            if r.status_code not in (200,204): out.append((p,r.status_code))
    rt=api.parts.runtime
    for cont in all_controllers(rt):
        try: run_controller(rt,cont)
        except Exception as e: out.append((type(cont).__name__,repr(e)[:150]))
    return out

BIG=[0,-1,2**31,2**32,2**62-1,2**63,-2**63,1e308,1.5,True,None,"x",[], {}, "9"*50, 10**40]
RAW=object()
FACTS=[]
for v in BIG+['<script>','x'*100000]:
    FACTS+= [('phase',dict(phase=v)),('phase',dict(phase='train',step=v)),('notice',dict(action=v,seconds_left=v,source=v,notice_id=v)),('rebalance',dict(source=v)),
    ('preparation_failed',dict(stage=v,message=v,store_unavailable=v)),('prepared',dict(parent=dict(fence=v,step=v,digest=v),master_port=v)),('prepared',dict(parent=v,master_port=20000)),
    ('checkpoint',dict(step=v,digest='d'*64,size_bytes=1,final=False)),('checkpoint',dict(step=5,digest=v,size_bytes=v,parent=v,final=v,metrics=v)),('checkpoint',dict(step=6,digest='d',size_bytes=9,parent=dict(fence=v,step=v,digest=v),final=True,metrics=dict(a=v))),
    ('completion',dict(step=v,digest=v)),('trainer_ended',dict(outcome=v,exit_code=1)),('trainer_ended',dict(outcome='failed',exit_code=v,step=v,error=v)),
    ('trainer_ended',dict(outcome='failed',exit_code=1,step=3,error=dict(message=v,rank=v,type=v,signal=v,out_of_memory=v,failed_uptime_ms=v))),
    ('stalled',dict(step=v,seconds=v)),('fenced_off',dict(by_fence=v)),('gpu_fault',dict(message=v)),('metrics',dict(points=v)),('metrics',dict(points=[v])),('metrics',dict(points=[dict(step=v,loss=v)])),('leaving',dict(reason=v))]

def test_facts(api):
    bad=[]
    for i,(k,d) in enumerate(FACTS):
        try: json.dumps(d,allow_nan=False)
        except ValueError: continue
        a,name=training(api)
        f=a.fact(FactKind(k),**d)
        try: r=a.report(fence=1,phase='train',facts=[f])
        except Exception as e: bad.append((k,str(d)[:80],repr(e))); continue
        if r.status_code!=200: bad.append((k,str(d)[:80],r.status_code,r.text[:150]))
        if i%1==0:
            o=look(api,name) if i%3==0 or k in('phase','checkpoint') else []
            if o: bad.append((k,str(d)[:80],'LOOK',o))
    for b in bad: print(b)
    print(len(FACTS))
    assert 0

PROG=[dict(step=v,total_steps=t,metrics=m) for v,t,m in [(1,2**62,{}),(0,0,{}),(2**62,1,{}),(2**62,2**62,{}),(5,10**15,{}),(1,100,{'loss':1e308}),(1,100,{'loss':-1e308,'samples_per_second':1e308}),(1,100,{'':1}),(1,100,{'<script>alert(1)</script>':1}),(1,100,{'x'*200000:1}),(1,100,{'a\0b':1}),(1,100,{'=cmd()':1}),(1,100,{'loss':10**300}),(1,100,{'loss':10**30}),(3,None,{})]]
def test_progress(api):
    bad=[]
    for d in PROG:
        a,name=training(api,deadline='2h',estimate={'hours':1},budget_usd=5)
        time.sleep(0.01)
        for k in range(2):
            dd=dict(d); 
            if k: dd['step']=d['step']
            r=a.report(fence=1,phase='train',progress=dd)
            if r.status_code!=200: bad.append((str(d)[:80],r.status_code,r.text[:150]))
        a.facts_told
        r=a.report(fence=1,phase='train',progress=d,facts=[a.fact(FactKind.REBALANCE)])
        if r.status_code!=200: bad.append((str(d)[:80],'fact',r.status_code,r.text[:150]))
        time.sleep(.7)
        o=look(api,name)
        if o: bad.append((str(d)[:80],'LOOK',o))
    # raw ones
    a,name=training(api)
    for raw in (b'1e400',b'-1e400',b'NaN',b'Infinity',b'1'+b'0'*400,b'"\\ud800"'):
        doc=json.dumps(a.document(fence=1,phase='train',progress={'step':1,'metrics':{'loss':12345}})).encode().replace(b'12345',raw)
        r=api.client.post(f'{api.url}/agent/v1/reports',content=doc,headers=a.headers)
        print(raw[:20],r.status_code,r.text[:120])
        time.sleep(.7); o=look(api,name)
        if o: bad.append((raw,'LOOK',o))
    for b in bad: print(b)
    assert 0

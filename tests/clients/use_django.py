"""Django: an unmanaged model, whose insert names every field of it, and the function by a cursor."""

import json
import os
from datetime import timedelta

import django
from django.conf import settings

PAYLOAD = {"client": "django"}
settings.configure(
    USE_TZ=True,
    DATABASES={"default": {
        "ENGINE": "django.db.backends.postgresql", "HOST": os.environ["PGHOST"],
        "USER": os.environ["PGUSER"], "NAME": os.environ["PGDATABASE"],
        "PASSWORD": os.environ.get("PGPASSWORD", ""), "PORT": os.environ.get("PGPORT", "")}})
django.setup()

from django.db import connection, models, transaction  # noqa: E402
from django.utils import timezone  # noqa: E402
from psycopg.types.json import Jsonb  # noqa: E402


class Task(models.Model):
    id = models.BigAutoField(primary_key=True)
    lambda_name = models.CharField(db_column="lambda", max_length=63)
    payload = models.JSONField(null=True)
    priority = models.CharField(max_length=8, default="normal")
    collection = models.CharField(max_length=63, null=True)
    scheduled_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        app_label = "tasks"
        managed = False
        db_table = '"tuskline"."task"'


with transaction.atomic():
    create = lambda **more: Task.objects.create(lambda_name="work", payload=PAYLOAD, **more).id
    ids = {"insert": create(priority="high"), "later": create(scheduled_at=timezone.now() + timedelta(hours=1))}
    many = Task.objects.bulk_create([Task(lambda_name="work", payload=PAYLOAD) for _ in range(3)])
    assert len({one.id for one in many}) == 3
    with connection.cursor() as cursor:
        cursor.execute("select tuskline.schedule(%s, %s)", ["work", Jsonb(PAYLOAD)])
        ids["call"] = cursor.fetchone()[0]
print(json.dumps(ids))

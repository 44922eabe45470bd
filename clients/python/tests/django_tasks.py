"""Tasks of a Django project."""

from django.db import connection
from django.tasks import task


@task
def add(left, right=1):
    return left + right


@task(priority=60, queue_name="reports", takes_context=True)
async def report(context, name):
    return f"{name} {context.attempt}"


@task
def fails():
    raise ValueError("no")


@task
def writes(number):
    with connection.cursor() as cursor:
        cursor.execute("insert into written values (%s)", [number])

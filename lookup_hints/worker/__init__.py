"""What Spark calls on its Python workers: functions over Arrow and pandas, and what they leave behind."""
